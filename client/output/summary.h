// What happened to a job while nobody looked, in a few lines. Pure.
#pragma once

#include <string>

#include "client/output/tables.h"

namespace megatrain::v1 {
class EventsChunk;
}

namespace mt::client {

// State and since when, how far it is, the last evaluation, the last checkpoint or failed save,
// what is wrong, and the newest of `events`.
std::string JobSummary(const v1::Job& job, const v1::EventsChunk& events, const TableArgs& args);

// "step 812 of 1200, loss 2.0512 (first 5.5514), 8.9k tokens/s"; "" before the first step.
std::string ProgressText(const v1::Job& job);
// "step 800, 3m12s ago, 9.7 MiB"; "" where there is none.
std::string CheckpointAgeText(const v1::Job& job, const Style& style);

}  // namespace mt::client
