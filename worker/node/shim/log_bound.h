// Keeps a rank's log within its share of the disk (T3: 8 x 64 MiB) without involving the rank: the
// blocks of the oldest part are deallocated (a hole in the file) as the log grows. Nothing is
// copied, no line is lost, the rank's descriptor stays valid and readers' offsets stay correct; the
// head of a long log reads as zeros and takes no space.
#pragma once

namespace mt::node {

// Default size of a log, the number of parts it is divided into, and the interval at which Apply is
// called.
inline constexpr int kLogMaxMib = 512;
inline constexpr int kLogParts = 8;
inline constexpr int kLogCheckMs = 1000;  // how often Apply is called

// Used by one thread. Does not own the descriptor.
class LogBound {
 public:
  // `fd` must be open for writing; `max_mib` >= 1.
  LogBound(int fd, int max_mib);

  // Deallocates the parts beyond the limit. If the file system does not support it, prints one line
  // on stderr, once, and lets the log grow.
  void Apply();

 private:
  const int fd_;
  const long long part_bytes_;
  long long dropped_to_ = 0;  // bytes before it are deallocated
  bool gave_up_ = false;
};

}  // namespace mt::node
