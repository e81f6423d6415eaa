// JSON is formatted into a fixed buffer, so that writing a record allocates nothing and cannot fail
// for lack of memory.
#include "worker/node/shim/record.h"

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mt::node {
namespace {

constexpr size_t kMaxRecord = 4096;

// A fixed buffer that records whether everything has fitted.
class Text {
 public:
  __attribute__((format(printf, 2, 3))) void Add(const char* format, ...) {
    va_list args;
    va_start(args, format);
    const int n = std::vsnprintf(data_ + size_, kMaxRecord - size_, format, args);
    va_end(args);
    if (n < 0 || static_cast<size_t>(n) >= kMaxRecord - size_) {
      fits_ = false;
      return;
    }
    size_ += static_cast<size_t>(n);
  }
  void AddQuoted(const char* text) {
    Add("\"");
    for (; *text != '\0'; ++text) {
      const auto c = static_cast<unsigned char>(*text);
      if (c == '"' || c == '\\') {
        Add("\\%c", c);
      } else if (c < 0x20) {
        Add("\\u%04x", c);
      } else {
        Add("%c", c);
      }
    }
    Add("\"");
  }
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  bool fits() const { return fits_; }

 private:
  char data_[kMaxRecord] = {};
  size_t size_ = 0;
  bool fits_ = true;
};

bool Complain(const char* what, const char* path) {
  std::fprintf(stderr, "mt-shim: %s %s: %s\n", what, path, std::strerror(errno));
  return false;
}

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteAtomic(const char* dir, const char* name, const Text& text) {
  char path[PATH_MAX];
  char temporary[PATH_MAX];
  const int n = std::snprintf(temporary, sizeof(temporary), "%s/%s.tmp", dir, name);
  std::snprintf(path, sizeof(path), "%s/%s", dir, name);
  if (!text.fits() || n < 0 || static_cast<size_t>(n) >= sizeof(temporary)) {
    errno = ENAMETOOLONG;
    return Complain("write", name);
  }
  const int fd = ::open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Complain("create", temporary);
  const bool written = WriteAll(fd, text.data(), text.size()) && ::fsync(fd) == 0;
  if (!written) Complain("write", temporary);
  ::close(fd);
  if (!written) {
    ::unlink(temporary);
    return false;
  }
  if (::rename(temporary, path) != 0) return Complain("rename to", path);
  const int dir_fd = ::open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd < 0 || ::fsync(dir_fd) != 0) Complain("sync folder", dir);
  if (dir_fd >= 0) ::close(dir_fd);
  return true;
}

// Reads the first `size - 1` bytes of a file of /proc and terminates them with a null; empty if it
// cannot be read.
void ReadSmall(const char* path, char* out, size_t size) {
  out[0] = '\0';
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t n = ::read(fd, out, size - 1);
  ::close(fd);
  out[n > 0 ? n : 0] = '\0';
}

long long NowMicros() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

long long Micros(const struct timeval& time) { return time.tv_sec * 1000000LL + time.tv_usec; }

const char* Name(StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      return "none";
    case StopReason::kAgentGone:
      return "agent_gone";
    case StopReason::kSignal:
      return "signal";
  }
  return "none";
}

}  // namespace

long long ReadStartTicks(pid_t pid) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
  char stat[2048];
  ReadSmall(path, stat, sizeof(stat));
  // The command (field 2) may contain spaces and parentheses; the last ')' ends it.
  const char* at = std::strrchr(stat, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  long long ticks = -1;
  if (at == nullptr || std::sscanf(at, "%lld", &ticks) != 1) return -1;
  return ticks;
}

bool WriteRankRecord(const ShimOptions& options, pid_t rank_pid) {
  char boot_id[64];
  ReadSmall("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id));
  boot_id[std::strcspn(boot_id, "\n")] = '\0';
  Text text;
  text.Add("{\"job_uid\": ");
  text.AddQuoted(options.job_uid);
  text.Add(", \"epoch\": %ld, \"rank\": %d, \"slot\": %d", options.epoch, options.rank,
           options.slot);
  text.Add(", \"pid\": %d, \"start_ticks\": %lld", static_cast<int>(rank_pid),
           ReadStartTicks(rank_pid));
  text.Add(", \"shim_pid\": %d, \"shim_start_ticks\": %lld", static_cast<int>(::getpid()),
           ReadStartTicks(::getpid()));
  text.Add(", \"boot_id\": ");
  text.AddQuoted(boot_id);
  text.Add(", \"time_us\": %lld}\n", NowMicros());
  return WriteAtomic(options.dir, "rank.json", text);
}

bool WriteExitRecord(const ShimOptions& options, const ExitRecord& record) {
  const int status = record.wait_status;
  const bool signaled = WIFSIGNALED(status);
  Text text;
  text.Add("{\"code\": %d, \"signal\": %d, \"core\": %s", signaled ? 0 : WEXITSTATUS(status),
           signaled ? WTERMSIG(status) : 0, signaled && WCOREDUMP(status) ? "true" : "false");
  text.Add(", \"time_us\": %lld, \"user_us\": %lld, \"system_us\": %lld, \"max_rss_bytes\": %lld",
           NowMicros(), Micros(record.usage.ru_utime), Micros(record.usage.ru_stime),
           record.usage.ru_maxrss * 1024LL);
  text.Add(", \"stop\": \"%s\", \"error\": ", Name(record.stop));
  if (record.error_number != 0) {
    char error[512];
    std::snprintf(error, sizeof(error), "%s: %s", record.error, std::strerror(record.error_number));
    text.AddQuoted(error);
  } else {
    text.AddQuoted(record.error);
  }
  text.Add("}\n");
  return WriteAtomic(options.dir, "exit.json", text);
}

}  // namespace mt::node
