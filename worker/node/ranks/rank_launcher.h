// Starts and ends rank processes, and takes over those of an earlier agent, each under a launch id
// that the caller chooses. Implemented by shim_launcher.h, through mt-shim, and by a fake in tests.
// Loop thread only; no call waits for a process.
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
  std::string folder;            // holds rank.json and exit.json; created by Start
  std::string log_file;          // its folder is created by Start
  std::string token;             // secret; reaches the rank by its environment only
  bool stop_with_agent = false;  // the rank is ended when this process ends
  std::string gpu;               // UUID; empty: a CPU slot
  std::string cpus;              // cores for the rank, as "0-31,64-95"; empty: all of the agent's
};

// How a rank's process ended. Nothing of its process group is left.
struct RankExit {
  bool known = false;  // false: nobody has collected its status; code and signal are meaningless
  int code = 0;        // if signal is 0
  int signal = 0;
  bool core = false;
  bool stopped = false;  // ended by its shim, on request or because the agent ended
  std::string error;     // why the program could not be started, or the exit is not known
  // Messages that were not acknowledged: RankMessages, each preceded by its length as a varint.
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
  // Starts a rank. If that succeeds, OnRankGone follows exactly once, never from inside Start.
  virtual Status Start(LaunchId launch, const RankLaunch& args) = 0;
  // Takes over what an earlier agent has started with this folder, and returns the rank's pid; 0 if
  // it is not known. OnRankGone follows exactly once, never from inside; soon if the rank has ended
  // or was never started.
  virtual int Adopt(LaunchId launch, const std::string& folder) = 0;
  // SIGTERM to the rank's process group, SIGKILL after the grace (P5). Unknown ids are ignored.
  virtual void Terminate(LaunchId launch) = 0;
  // SIGKILL to the rank's process group at once. Unknown ids are ignored.
  virtual void Kill(LaunchId launch) = 0;
};

}  // namespace mt::node
