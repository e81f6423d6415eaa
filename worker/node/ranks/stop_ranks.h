// Ends every rank that an agent of this node has left running: `mt-worker stop-ranks`, for use
// before a node is taken away. No agent may use the state folder meanwhile. Blocks.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::node {

struct StoppedRank {
  std::string job_uid;
  int64_t epoch = 0;
  int rank = 0;
  int pid = 0;          // 0 if not known
  bool killed = false;  // it did not end by itself after SIGTERM and got SIGKILL
};

// Sends SIGTERM to all ranks, and SIGKILL after the grace (P5) to those that are left. The records
// stay, so that an agent that is started again reports how the ranks ended. kDeadlineExceeded names
// a process that does not end.
StatusOr<std::vector<StoppedRank>> StopRanks(const std::string& allocations,
                                             std::chrono::milliseconds grace);

}  // namespace mt::node
