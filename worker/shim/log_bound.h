// Keeps a rank's log within its share of the disk (T3: 8 x 64 MiB) without touching what the rank
// does: the oldest eighth's blocks are given back (a hole in the file), again and again. Nothing is
// copied and no line is lost on the way, the rank's descriptor stays good, and offsets of readers
// stay true; the head of a long log reads as zeros and takes no space.
#pragma once

namespace mt::shim {

inline constexpr int kLogMaxMib = 512;
inline constexpr int kLogParts = 8;
inline constexpr int kLogCheckMs = 1000;  // how often Apply is called

class LogBound {
 public:
  // `fd` is open for writing; `max_mib` at least 1.
  LogBound(int fd, int max_mib);

  // One line on stderr, once, where the file system cannot do it; the log then grows.
  void Apply();

 private:
  const int fd_;
  const long long part_bytes_;
  long long dropped_to_ = 0;  // everything before it was given back
  bool gave_up_ = false;
};

}  // namespace mt::shim
