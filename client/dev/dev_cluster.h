// A coordinator and one worker on loopback, for a laptop or a test: `mtctl dev up|down|status`. All
// state lies in one folder, $XDG_STATE_HOME/megatrain/dev, and a lock file there keeps two `dev`
// commands apart. Functions block; one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/dev/dev_state.h"
#include "client/dev/process.h"
#include "common/base/status.h"

namespace mt::client {

// What `dev up` found running and has left alone.
struct DevFound {
  bool coordinator = false, worker = false;
};

// What Purge removed and what it left.
struct DevPurged {
  int64_t bytes = 0;            // removed
  std::string checkpoint_root;  // stays
  int64_t checkpoint_bytes = 0;
};

class DevCluster {
 public:
  // `folder` holds all state; the programs are expected beside this executable.
  explicit DevCluster(const std::string& folder);

  // Starts the daemons that are not running, with the settings of before where the flags give none,
  // and blocks until the worker's slots are offered. What runs is left alone, and so are its ranks;
  // kFailedPrecondition where it runs with other settings than the flags ask for, or where the
  // worker lives but its coordinator's port is taken. Errors quote the end of the daemon's log.
  StatusOr<DevState> Up(const DevUpArgs& args, DevFound* found);
  // Stops the worker, the ranks that it left, and the coordinator; kNotFound where neither daemon
  // runs: ranks that have outlived both are ended then, too.
  Status Down();
  // Removes the store with every job's history, logs, caches and settings; checkpoints stay.
  // kFailedPrecondition while something runs.
  StatusOr<DevPurged> Purge();
  // What was started last, whether it is alive or not; nullopt where nothing was.
  StatusOr<std::optional<DevState>> Read() const;

 private:
  Status StartMissing(const DevFound& found, DevState* state) const;
  Status StartCoordinator(bool worker_lives, DevState* state) const;
  Status StartWorker(DevState* state) const;
  StatusOr<DevSettings> Settings(const std::optional<DevState>& old, const DevUpArgs& args) const;
  Status WaitForPort(const ProcessId& coordinator, const std::string& port_file,
                     std::string* endpoint) const;
  Status WaitForWorker(const DevState& state) const;
  // Runs a program to its end, at most kStopGrace; kInternal with the end of its log if it fails.
  Status RunToEnd(const std::vector<std::string>& argv, const std::string& name,
                  const std::string& log) const;
  Status MakeStore(const std::string& coordinator) const;
  Status StopRanks() const;
  std::string Path(const std::string& name) const;

  const std::string folder_;
};

}  // namespace mt::client
