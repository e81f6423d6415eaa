// Starts and ends rank processes; told apart by a launch id. shim_launcher.h does it through
// mt-shim, tests by hand. Loop thread only.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace mt::agent {

using LaunchId = int64_t;

struct RankLaunch {
  std::string job_uid;
  int64_t epoch = 0;
  int rank = 0;
  int slot = 0;
  int threads = 1;
  std::string folder;    // of this rank: rank.json, exit.json; made by Start
  std::string log_file;  // its folder is made by Start
  std::string token;     // secret; reaches the rank by its environment only
};

// How a rank's process ended, and that nothing of it is left.
struct RankExit {
  bool known = false;  // false: the shim died without a record; code and signal mean nothing
  int code = 0;        // where signal is 0
  int signal = 0;
  bool core = false;
  std::string error;  // the program could not be started, or why the exit is not known
};

class RankLauncher {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnRankGone(LaunchId launch, const RankExit& exit) = 0;
  };

  virtual ~RankLauncher() = default;
  virtual void SetListener(Listener* listener) = 0;
  // OnRankGone follows a successful start exactly once, never from inside Start.
  virtual Status Start(LaunchId launch, const RankLaunch& args) = 0;
  // SIGTERM to the rank's process group, SIGKILL after the grace (P5). Unknown ids are ignored.
  virtual void Terminate(LaunchId launch) = 0;
  // SIGKILL to the group now.
  virtual void Kill(LaunchId launch) = 0;
};

}  // namespace mt::agent
