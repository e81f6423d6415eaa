// One rank as its Allocation sees it. Included by allocation*.cc only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/node/ranks/allocation.h"
#include "worker/node/ranks/rank_verdict.h"

namespace megatrain::v1 {
enum RankState : int;
}

namespace mt::node {

struct Allocation::Rank {
  int rank = 0;
  int slot = 0;
  std::string gpu;  // UUID; empty: a CPU slot
  std::string token;
  std::string log_file;
  LaunchId launch = 0;
  LinkId link = kNoLink;
  megatrain::v1::RankState state{};
  int64_t pid = 0;
  int64_t step = 0;           // the last one done, as far as known
  int64_t forwarded_seq = 0;  // of its numbered messages
  int64_t acked_seq = 0;      // that the coordinator has
  bool gone = false;
  bool reported_gone = false;
  bool killed_by_agent = false;  // this one, or one before it
  RankExit exit;
  ProgressWatch watch;
  std::optional<ProgressWatch::Stall> stall;  // as it was reported
  RankFaultReport fault;                      // what it said of itself
  RankVerdict verdict;                        // once gone
  std::string final_message;
};

}  // namespace mt::node
