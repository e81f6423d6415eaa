// A disk that is full, as far as a process can have one by itself: no file grows beyond so many
// bytes while the object lives. What is written beyond that fails with EFBIG.
#pragma once

#include <csignal>
#include <sys/resource.h>

namespace mt::data {

class RoomLimit {
 public:
  RoomLimit() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, SIG_IGN);
  }
  explicit RoomLimit(rlim_t bytes) : RoomLimit() { Set(bytes); }
  RoomLimit(const RoomLimit&) = delete;
  RoomLimit& operator=(const RoomLimit&) = delete;
  ~RoomLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  void Set(rlim_t bytes) const {
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

 private:
  struct rlimit before_ {};
};

}  // namespace mt::data
