// A line on stderr that shows how far a long reading or writing of files is. On a terminal only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mt::client {

// Show is called by one thread at a time. The line goes away with the object.
class BytesLine {
 public:
  explicit BytesLine(std::string what);  // "verifying"
  ~BytesLine();
  BytesLine(const BytesLine&) = delete;
  BytesLine& operator=(const BytesLine&) = delete;

  // "verifying  1.2 GiB of 5.0 GiB  24%  830.0 MiB/s", some times a second.
  void Show(int64_t done_bytes, int64_t total_bytes);
  // Leaves the line for what is printed next.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  const bool terminal_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_{};
  bool shown_ = false;
};

}  // namespace mt::client
