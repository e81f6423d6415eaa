// The tables of `mtctl get`: a header and one row per item; `wide` appends columns. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/output/render.h"
#include "client/output/style.h"

namespace megatrain::v1 {
class CheckpointInfo;
class Event;
class Job;
class ListCheckpointsResponse;
class ListJobsResponse;
class ListNodesResponse;
class ListOperationsResponse;
class Node;
class Operation;
class Orphan;
}  // namespace megatrain::v1

namespace mt::client {

namespace v1 = megatrain::v1;

// How to print a table.
struct TableArgs {
  Style style;
  bool wide = false;
};

// Header and row of each kind of item have the same number of cells for the same args.
std::vector<std::string> JobHeader(const TableArgs& args);
std::vector<std::string> JobRow(const v1::Job& job, const TableArgs& args);
std::vector<std::string> NodeHeader(const TableArgs& args);
std::vector<std::string> NodeRow(const v1::Node& node, const TableArgs& args);
// What is to be said below the table of nodes: why slots are out of order, a line for each reason.
std::string NodeNotes(const v1::ListNodesResponse& nodes);
std::vector<std::string> OrphanHeader(const TableArgs& args);
std::vector<std::string> OrphanRow(const v1::Orphan& orphan, const TableArgs& args);
std::vector<std::string> CheckpointHeader(const TableArgs& args);
std::vector<std::string> CheckpointRow(const v1::CheckpointInfo& checkpoint, const TableArgs& args);
std::vector<std::string> OperationHeader(const TableArgs& args);
std::vector<std::string> OperationRow(const v1::Operation& operation, const TableArgs& args);
std::vector<std::string> EventHeader(const TableArgs& args);
std::vector<std::string> EventRow(const v1::Event& event, const TableArgs& args);

// One event as a line of `events -f`; columns of successive lines are not aligned.
std::string EventLine(const v1::Event& event, const TableArgs& args);

// "done", "failed", or the operation's own text on its progress.
std::string OperationStateText(const v1::Operation& operation);

// The names by which other verbs find the jobs: the job's name, or its uid where a newer job in the
// list has the same name or where it is not in `job_namespace`.
std::vector<std::string> JobNames(const v1::ListJobsResponse& jobs,
                                  const std::string& job_namespace);

}  // namespace mt::client
