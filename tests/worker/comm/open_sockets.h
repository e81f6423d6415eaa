// How many connections a process has, for tests of what groups cost.
#pragma once

#include <filesystem>
#include <system_error>

namespace mt::comm {

// Sockets that this process has open.
inline int OpenSockets() {
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the descriptor of the listing itself
    sockets += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:");
  }
  return sockets;
}

}  // namespace mt::comm
