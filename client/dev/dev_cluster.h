// A coordinator and one worker on loopback, for a laptop or a test: `mtctl dev up|down|status`. All
// state lies in one folder, $XDG_STATE_HOME/megatrain/dev, and a lock file there keeps two `dev`
// commands apart. Functions block; one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/dev/process.h"
#include "common/base/status.h"

namespace mt::client {

// Flags of `dev up`.
struct DevUpArgs {
  int cpu_slots = 4;            // in addition to the GPUs of this machine
  std::string gpus = "all";     // value of mt-worker's --gpus
  std::string data_root;        // empty: current directory
  std::string checkpoint_root;  // empty: <state>/checkpoints
};

// What `dev up` started, as stored in the folder.
struct DevState {
  ProcessId coordinator, worker;
  std::string endpoint;     // "127.0.0.1:41234"
  std::string worker_http;  // HTTP address that serves /metrics, /livez, /readyz
  std::string data_root, checkpoint_root, log_root;
};

class DevCluster {
 public:
  // `folder` holds all state; the programs are expected beside this executable.
  explicit DevCluster(std::string folder);

  // Starts the daemons that are not running and blocks until the worker's slots are offered.
  // *already says that both were running. Errors quote the end of the daemon's log.
  StatusOr<DevState> Up(const DevUpArgs& args, bool* already);
  // Stops the worker, the ranks that it left, and the coordinator; kNotFound where nothing runs.
  Status Down();
  // What was started last, whether it is alive or not; nullopt where nothing was.
  StatusOr<std::optional<DevState>> Read() const;

 private:
  Status Start(const DevUpArgs& args, DevState* state);
  Status WaitForPort(const ProcessId& coordinator, const std::string& port_file,
                     std::string* endpoint) const;
  Status WaitForWorker(const DevState& state) const;
  // Runs a program to its end, at most kStopGrace. How it ended is not looked at: what needs its
  // work says what is missing, and the log says why.
  Status RunToEnd(const std::vector<std::string>& argv, const std::string& name,
                  const std::string& log) const;
  Status MakeStore(const std::string& coordinator) const;
  Status StopRanks() const;
  Status Write(const DevState& state) const;
  std::string Path(const std::string& name) const;

  const std::string folder_;
};

}  // namespace mt::client
