// Reads what mt-shim leaves in a rank's folder (worker/shim/FORMAT.md), and tells whether a
// recorded process is still there.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "worker/agent/rank_launcher.h"

namespace mt::agent {

struct RankRecord {
  int pid = 0;
  int64_t start_ticks = 0;
  int shim_pid = 0;
  int64_t shim_start_ticks = 0;
  std::string boot_id;
};

// NotFound where there is none; DataLoss where it cannot be read.
StatusOr<RankRecord> ReadRankRecord(const std::string& folder);
StatusOr<RankExit> ReadExitRecord(const std::string& folder);

// The process with this pid started at these ticks of this boot and is not a zombie.
bool IsAlive(int pid, int64_t start_ticks);

}  // namespace mt::agent
