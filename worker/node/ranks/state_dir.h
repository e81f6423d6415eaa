// The agent's folder: one agent at a time (a lock), where its records lie, and its socket.
// Blocking; used before the loop runs.
#pragma once

#include <string>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::node {

class StateDir {
 public:
  // Makes the folder and takes its lock until destruction. FailedPrecondition where another agent
  // has it.
  static StatusOr<StateDir> Open(const std::string& path);

  // Below it: what runs, by job and epoch (allocation_dir.h).
  std::string allocations() const { return path_ + "/allocations"; }
  // Where ranks call: in the folder itself, or, since a Unix socket's path must be shorter than 108
  // bytes, in a private folder of $XDG_RUNTIME_DIR or /tmp whose name follows from the folder's.
  StatusOr<std::string> SocketPath() const;

 private:
  StateDir(std::string path, base::Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  base::Fd lock_;
};

}  // namespace mt::node
