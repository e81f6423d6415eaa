// The description of one job as text for people. Pure.
#pragma once

#include <string>

#include "client/output/tables.h"

namespace megatrain::v1 {
class EventsChunk;
}

namespace mt::client {

// What the description is made of; all borrowed.
struct JobFacts {
  const v1::Job* job;
  const v1::ListOperationsResponse* operations;
  const v1::EventsChunk* events;  // the last ones, oldest first
  bool spec = false;              // with the spec and all its defaults
};

// State and why it waits, times, progress, ranks, checkpoints, operations; the last errors and the
// newest events, each once with a count; and the spec where asked for.
std::string DescribeJob(const JobFacts& facts, const TableArgs& args);

}  // namespace mt::client
