// Ends every rank that an agent of this node has left running: `mt-worker stop-ranks`, before a
// node is taken away. For a state folder that no agent uses. Blocking.
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
  int pid = 0;          // 0: not known
  bool killed = false;  // it did not end by itself after SIGTERM
};

// SIGTERM to all, SIGKILL after the grace (P5) to what is left. The records stay: an agent that is
// started again tells the coordinator how the ranks ended. DeadlineExceeded names a process that
// does not end.
StatusOr<std::vector<StoppedRank>> StopRanks(const std::string& allocations,
                                             std::chrono::milliseconds grace);

}  // namespace mt::node
