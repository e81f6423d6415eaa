// A coordinator and one worker on loopback, for a laptop or a test: `mtctl dev up|down|status`. All
// state lies in one folder, $XDG_STATE_HOME/megatrain/dev. Blocking; one thread; a lock file keeps
// two `dev` commands apart.
#pragma once

#include <optional>
#include <string>

#include "client/dev/process.h"
#include "common/base/status.h"

namespace mt::client {

struct DevUpArgs {
  int cpu_slots = 4;            // beside the GPUs of this machine
  std::string gpus = "all";     // as --gpus of mt-worker
  std::string data_root;        // empty: current directory
  std::string checkpoint_root;  // empty: <state>/checkpoints
};

struct DevState {
  ProcessId coordinator, worker;
  std::string endpoint;     // "127.0.0.1:41234"
  std::string worker_http;  // of /metrics, /livez, /readyz
  std::string data_root, checkpoint_root, log_root;
};

class DevCluster {
 public:
  // `folder` holds everything; programs are looked for beside this executable.
  explicit DevCluster(std::string folder);

  // Starts what is not running and waits until the worker's slots are offered. *already: both were
  // running.
  StatusOr<DevState> Up(const DevUpArgs& args, bool* already);
  // Stops the worker, every rank that it left, and the coordinator; kNotFound where nothing runs.
  Status Down();
  // What was started last, alive or not; empty where nothing was.
  StatusOr<std::optional<DevState>> Read() const;

 private:
  Status Start(const DevUpArgs& args, DevState* state);
  Status WaitForPort(const ProcessId& coordinator, const std::string& port_file,
                     std::string* endpoint) const;
  Status WaitForWorker(const DevState& state) const;
  Status StopRanks() const;
  Status Write(const DevState& state) const;
  std::string Path(const std::string& name) const;

  const std::string folder_;
};

}  // namespace mt::client
