// fallocate(2) with FALLOC_FL_PUNCH_HOLE on whole parts, so that a call per second costs one fstat
// in most cases.
#include "worker/node/shim/log_bound.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>

namespace mt::node {

LogBound::LogBound(int fd, int max_mib)
    : fd_(fd), part_bytes_((static_cast<long long>(max_mib) << 20) / kLogParts) {}

void LogBound::Apply() {
  struct stat info {};
  if (gave_up_ || ::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return;
  // The part being written and the kLogParts - 1 before it are kept.
  const long long keep_from = (info.st_size / part_bytes_ - (kLogParts - 1)) * part_bytes_;
  if (keep_from <= dropped_to_) return;
  if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, dropped_to_,
                  keep_from - dropped_to_) == 0) {
    dropped_to_ = keep_from;
  } else if (errno != EINTR) {
    gave_up_ = true;
    std::fprintf(stderr, "mt-shim: the log is not bounded: %s\n", std::strerror(errno));
  }
}

}  // namespace mt::node
