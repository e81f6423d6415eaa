// Reads what mt-shim and the rank leave in the rank's folder (worker/node/shim/FORMAT.md). Blocks
// on the local disk.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "worker/node/ranks/rank_launcher.h"

namespace mt::node {

struct RankRecord {
  int pid = 0;
  int64_t start_ticks = 0;
  int shim_pid = 0;
  int64_t shim_start_ticks = 0;
  std::string boot_id;
};

// rank.json and exit.json. kNotFound if the file does not exist, kDataLoss if it is damaged.
StatusOr<RankRecord> ReadRankRecord(const std::string& folder);
StatusOr<RankExit> ReadExitRecord(const std::string& folder);
// The bytes of unsent.pb; empty if it does not exist. An unreasonably long file is cut off.
std::string ReadUnsentFile(const std::string& folder);

}  // namespace mt::node
