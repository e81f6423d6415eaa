// The agent's folder: one agent at a time (a lock), the folders of its ranks, and what a dead agent
// left there. Blocking; used before the loop runs.
#pragma once

#include <chrono>
#include <string>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::agent {

class StateDir {
 public:
  // Makes the folder and takes its lock until destruction. FailedPrecondition where another agent
  // has it.
  static StatusOr<StateDir> Open(const std::string& path);

  // Ends every process that an earlier agent of this folder left (those of another boot are gone by
  // themselves), waits until they are gone, and empties the folders. DeadlineExceeded names a
  // process that does not go. The number of ranks found alive.
  StatusOr<int> SweepLeftovers(std::chrono::milliseconds limit);

  std::string rank_folders() const { return path_ + "/ranks"; }
  // Where ranks call: in the folder itself, or, since a Unix socket's path must be shorter than 108
  // bytes, in a private folder of $XDG_RUNTIME_DIR or /tmp whose name follows from the folder's.
  StatusOr<std::string> SocketPath() const;

 private:
  StateDir(std::string path, base::Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  base::Fd lock_;
};

}  // namespace mt::agent
