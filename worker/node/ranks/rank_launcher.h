// Starts and ends rank processes, and takes over those of an earlier agent; told apart by a launch
// id. shim_launcher.h does it through mt-shim, tests by hand. Loop thread only.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace mt::node {

using LaunchId = int64_t;

struct RankLaunch {
  std::string job_uid;
  int64_t epoch = 0;
  int rank = 0;
  int slot = 0;
  int threads = 1;
  std::string folder;            // of this rank: rank.json, exit.json; made by Start
  std::string log_file;          // its folder is made by Start
  std::string token;             // secret; reaches the rank by its environment only
  bool stop_with_agent = false;  // the rank is ended when this process ends
  std::string gpu;               // UUID; empty: a CPU slot
  std::string cpus;  // that the rank may use, as "0-31,64-95"; empty: all of the agent's
};

// How a rank's process ended, and that nothing of it is left.
struct RankExit {
  bool known = false;  // false: nobody has collected its status; code and signal mean nothing
  int code = 0;        // where signal is 0
  int signal = 0;
  bool core = false;
  bool stopped = false;  // its shim was asked to end it, or saw the end of the agent
  std::string error;     // the program could not be started, or why the exit is not known
  // What it had not got acknowledged: RankMessages, each after its length as a varint.
  std::string unsent;
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
  // Takes over what an earlier agent started with this folder. OnRankGone follows exactly once,
  // never from inside: soon where the rank has ended, or was never started. Its pid; 0: not known.
  virtual int Adopt(LaunchId launch, const std::string& folder) = 0;
  // SIGTERM to the rank's process group, SIGKILL after the grace (P5). Unknown ids are ignored.
  virtual void Terminate(LaunchId launch) = 0;
  // SIGKILL to the group now.
  virtual void Kill(LaunchId launch) = 0;
};

}  // namespace mt::node
