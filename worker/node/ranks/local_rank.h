// One rank of an allocation as this node knows it: what it was given, the process that runs it,
// and what it has reported. Plain data; loop thread only.
#pragma once

#include <cstdint>
#include <string>

#include "worker/node/ranks/rank_launcher.h"
#include "worker/node/ranks/rank_links.h"
#include "worker/node/ranks/rank_verdict.h"

namespace megatrain::v1 {
enum RankState : int;
}

namespace mt::node {

struct LocalRank {
  // Fixed when the allocation is made.
  int rank = 0;  // world rank
  int slot = 0;
  std::string gpu;       // UUID; empty: a CPU slot
  std::string token;     // secret that the rank shows when it calls; empty: not known any more
  std::string log_file;  // absolute path
  std::string folder;    // of rank.json and exit.json

  // Its process and its call to the agent.
  LaunchId launch = 0;
  LinkId link = kNoLink;
  int64_t pid = 0;               // 0: not known
  bool killed_by_agent = false;  // ended by this agent or by its shim, not by itself

  // Its own reports.
  megatrain::v1::RankState state{};
  int64_t step = 0;       // last completed step, as far as known
  RankFaultReport fault;  // exit_code 0: none

  // Its end.
  bool gone = false;          // the process has ended
  bool end_reported = false;  // and the coordinator was told
  RankExit exit;              // once gone
  std::string final_message;  // why it ended, as the coordinator was told
};

}  // namespace mt::node
