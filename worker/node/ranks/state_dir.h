// The agent's state folder (--state): a lock that admits one agent at a time, the folder of its
// records, and the path of its socket. Used before the loop runs; blocks on the local disk.
#pragma once

#include <string>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::node {

class StateDir {
 public:
  // Creates the folder and holds its lock until destruction. kFailedPrecondition if another agent
  // holds it; otherwise errors of the file system.
  static StatusOr<StateDir> Open(const std::string& path);

  // The folder of the records, by job and epoch (allocation_dir.h).
  std::string allocations() const { return path_ + "/allocations"; }
  // The folder of what makes this node itself (worker/node/agent/secret_file.h): it may lie on a
  // volume of its own, which outlives the rest of the state.
  std::string identity() const { return path_ + "/identity"; }
  // The path of the socket that ranks call: in the folder itself or, because the path of a Unix
  // socket must be shorter than 108 bytes, in a private folder below $XDG_RUNTIME_DIR or /tmp,
  // under a name derived from the state folder's. kFailedPrecondition if neither will do.
  StatusOr<std::string> SocketPath() const;

 private:
  StateDir(std::string path, base::Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  base::Fd lock_;
};

}  // namespace mt::node
