// The rate is that of the whole time so far.
#include "client/commands/byte_progress.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "client/output/format.h"

namespace mt::client {

BytesLine::BytesLine(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

BytesLine::~BytesLine() { Clear(); }

void BytesLine::Show(int64_t done_bytes, int64_t total_bytes) {
  const auto now = Clock::now();
  if (!terminal_ || now < next_) return;
  next_ = now + std::chrono::milliseconds(200);
  const std::chrono::duration<double> took = now - begin_;
  const double rate = static_cast<double>(done_bytes) / std::max(took.count(), 1e-3);
  fmt::print(stderr, "\r{}  {} of {}  {}%  {}/s\x1b[K", what_, FormatBytes(done_bytes),
             FormatBytes(total_bytes), total_bytes > 0 ? done_bytes * 100 / total_bytes : 100,
             FormatBytes(static_cast<int64_t>(rate)));
  std::fflush(stderr);
  shown_ = true;
}

void BytesLine::Clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

}  // namespace mt::client
