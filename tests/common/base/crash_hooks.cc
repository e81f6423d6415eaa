// The C library's file functions, replaced in the test program that links this file: each one calls
// the library's own and, where a CrashLog records and the file lies below its root, logs what was
// done, or does what the log's faults say. The dynamic linker takes a program's symbol before a
// library's, so calls from libstdc++ (streams, std::filesystem) and SQLite come here too. What the
// C library calls within itself does not, so its functions that make or remove files (fopen,
// mkostemp, remove) are replaced as well; stdio's own writes remain unseen.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

#include "tests/common/base/crash_log.h"

namespace mt::crash {
namespace {

using Kind = Operation::Kind;

// The C library's own function of this name and type.
template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
#define NEXT(name)                                           \
  ([] {                                                      \
    static auto* const next = Next<decltype(::name)>(#name); \
    return next;                                             \
  }())

// This thread is within a call that is being logged: what the log itself does is not.
thread_local bool t_inside = false;

// One call of the code under test. Where a log records it holds the log's lock from before the
// operation until it is logged, so that the log has the order in which things happened.
class Call {
 public:
  Call() {
    CrashLog* const log = t_inside ? nullptr : Recording();
    if (log == nullptr) return;
    t_inside = true;
    lock_ = std::unique_lock(log->mutex());
    log_ = Recording();  // it may have stopped while this thread waited
  }
  ~Call() {
    if (!lock_) return;
    const int error = errno;
    lock_.unlock();
    t_inside = false;
    errno = error;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  CrashLog& log() { return *log_; }

  // Whether the log covers this path, relative to an open folder as in openat.
  bool Covers(int folder, const char* path, std::string* relative) const {
    if (log_ == nullptr || path == nullptr) return false;
    std::filesystem::path absolute = path;
    if (absolute.is_relative()) {
      absolute = (folder == AT_FDCWD ? std::filesystem::current_path() : OfFd(folder)) / absolute;
    }
    std::string text = absolute.lexically_normal().string();
    if (text.size() > 1 && text.back() == '/') text.pop_back();
    return log_->Covers(text, relative);
  }
  // Files that have no name any more have no place in the tree either.
  bool Covers(int fd, std::string* relative) const {
    return log_ != nullptr && log_->Covers(OfFd(fd).string(), relative) && Exists(fd);
  }

  // Of what the log covers only.
  void Add(Kind kind, const std::string& path, const std::string& to = "",
           Content content = nullptr) {
    if (log_ == nullptr) return;
    log_->Add({.kind = kind,
               .path = path,
               .to = to,
               .content = std::move(content),
               .thread = ::gettid()});
  }
  // Of what the log covers only. Sets errno where the operation is to fail.
  Fault FaultOf(Kind kind, const std::string& path, const std::string& to = "") {
    const Fault fault = log_->FaultOf(
        {.kind = kind, .path = path, .to = to, .content = nullptr, .thread = ::gettid()});
    if (fault.error != 0) errno = fault.error;
    return fault;
  }
  bool Fails(Kind kind, const std::string& path, const std::string& to = "") {
    return FaultOf(kind, path, to).error != 0;
  }
  void AddWrite(int fd, const std::string& path) {
    std::error_code error;
    const std::string file = OfFd(fd).string();
    std::string bytes(std::filesystem::file_size(file, error), '\0');
    std::ifstream(file, std::ios::binary).read(bytes.data(), std::ssize(bytes));
    Add(Kind::kWrite, path, "", std::make_shared<const std::string>(std::move(bytes)));
  }

 private:
  static std::filesystem::path OfFd(int fd) {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
  }
  static bool Exists(int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 && info.st_nlink > 0;
  }

  std::unique_lock<std::mutex> lock_;
  CrashLog* log_ = nullptr;
};

bool IsThere(int folder, const char* path) {
  struct stat info {};
  return ::fstatat(folder, path, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

// A call that may make a file or empty it; `body` returns its descriptor.
template <class Body>
int Opened(int folder, const char* path, int flags, const Body& body) {
  Call call;
  std::string relative;
  const bool covered = call.Covers(folder, path, &relative);
  const bool was_there = covered && IsThere(folder, path);
  const bool makes = !was_there && (flags & O_CREAT) != 0;
  const bool truncates = (flags & O_TRUNC) != 0;
  if (covered && call.Fails(makes ? Kind::kCreate : Kind::kOpen, relative)) return -1;
  const int fd = body();
  if (!covered || fd < 0) return fd;
  if (!was_there) call.Add(Kind::kCreate, relative);
  if (was_there && truncates) call.AddWrite(fd, relative);
  return fd;
}

// mkstemp and its kin: the name is known afterwards only.
template <class Body>
int OpenedNew(const char* name, const Body& body) {
  Call call;
  std::string relative;
  if (call.Covers(AT_FDCWD, name, &relative) && call.Fails(Kind::kCreate, relative)) return -1;
  const int fd = body();
  if (fd >= 0 && call.Covers(AT_FDCWD, name, &relative)) call.Add(Kind::kCreate, relative);
  return fd;
}

template <class Body>
FILE* OpenedStream(const char* path, const char* mode, const Body& body) {
  FILE* file = nullptr;
  const int flags = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT : 0;
  Opened(AT_FDCWD, path, flags, [&] {
    file = body();
    return file == nullptr ? -1 : ::fileno(file);
  });
  return file;
}

// Of a read or a write that a fault shortens; one byte at least.
size_t Half(size_t size) { return size < 2 ? size : size / 2; }

// A call that changes a file's bytes; negative: it failed. `body` is given how many.
template <class Body>
auto Written(int fd, size_t size, const Body& body) -> decltype(body(size)) {
  Call call;
  std::string relative;
  const bool covered = call.Covers(fd, &relative);
  const Fault fault = covered ? call.FaultOf(Kind::kWrite, relative) : Fault{};
  if (fault.error != 0) return -1;
  const auto result = body(fault.shortened ? Half(size) : size);
  if (result >= 0 && covered) call.AddWrite(fd, relative);
  return result;
}

template <class Body>
ssize_t WasRead(int fd, size_t size, const Body& body) {
  Call call;
  std::string relative;
  if (!call.Covers(fd, &relative)) return body(size);
  const Fault fault = call.FaultOf(Kind::kRead, relative);
  if (fault.error != 0) return -1;
  return body(fault.shortened ? Half(size) : size);
}

template <class Body>
int Synced(int fd, const Body& body) {
  Call call;
  std::string relative;
  if (!call.Covers(fd, &relative)) return body();
  if (call.log().FailsNow()) {
    errno = EIO;
    return -1;
  }
  if (call.Fails(Kind::kSync, relative)) return -1;
  const int result = body();
  if (result == 0) call.Add(Kind::kSync, relative);
  return result;
}

template <class Body>
int Changed(Kind kind, int folder, const char* path, const Body& body) {
  Call call;
  std::string relative;
  const bool covered = call.Covers(folder, path, &relative);
  if (covered && call.Fails(kind, relative)) return -1;
  const int result = body();
  if (covered && result == 0) call.Add(kind, relative);
  return result;
}

struct Place {
  int folder;
  const char* path;
};
template <class Body>
int Moved(Kind kind, Place from, Place to, const Body& body) {
  Call call;
  std::string from_relative, to_relative;
  const bool covered = call.Covers(from.folder, from.path, &from_relative) &&
                       call.Covers(to.folder, to.path, &to_relative);
  if (covered && call.Fails(kind, from_relative, to_relative)) return -1;
  const int result = body();
  if (covered && result == 0) call.Add(kind, from_relative, to_relative);
  return result;
}

}  // namespace
}  // namespace mt::crash

using mt::crash::Changed;
using mt::crash::Moved;
using mt::crash::Next;
using mt::crash::Opened;
using mt::crash::OpenedNew;
using mt::crash::OpenedStream;
using mt::crash::Synced;
using mt::crash::WasRead;
using mt::crash::Written;
using Kind = mt::crash::Operation::Kind;

// NOLINTBEGIN: the names, types and variadic arguments are the C library's.
extern "C" {

#define MODE_AFTER(flags)                         \
  mode_t mode = 0;                                \
  if (((flags) & (O_CREAT | __O_TMPFILE)) != 0) { \
    va_list args;                                 \
    va_start(args, flags);                        \
    mode = va_arg(args, mode_t);                  \
    va_end(args);                                 \
  }

int open(const char* path, int flags, ...) {
  MODE_AFTER(flags)
  return Opened(AT_FDCWD, path, flags, [&] { return NEXT(open)(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  MODE_AFTER(flags)
  return Opened(AT_FDCWD, path, flags, [&] { return NEXT(open64)(path, flags, mode); });
}
int openat(int folder, const char* path, int flags, ...) {
  MODE_AFTER(flags)
  return Opened(folder, path, flags, [&] { return NEXT(openat)(folder, path, flags, mode); });
}
int openat64(int folder, const char* path, int flags, ...) {
  MODE_AFTER(flags)
  return Opened(folder, path, flags, [&] { return NEXT(openat64)(folder, path, flags, mode); });
}
int creat(const char* path, mode_t mode) {
  return Opened(AT_FDCWD, path, O_CREAT | O_TRUNC, [&] { return NEXT(creat)(path, mode); });
}
int mkstemp(char* name) {
  return OpenedNew(name, [&] { return NEXT(mkstemp)(name); });
}
int mkostemp(char* name, int flags) {
  return OpenedNew(name, [&] { return NEXT(mkostemp)(name, flags); });
}
FILE* fopen(const char* path, const char* mode) {
  return OpenedStream(path, mode, [&] { return NEXT(fopen)(path, mode); });
}
FILE* fopen64(const char* path, const char* mode) {
  return OpenedStream(path, mode, [&] { return NEXT(fopen64)(path, mode); });
}

ssize_t write(int fd, const void* data, size_t size) {
  return Written(fd, size, [&](size_t n) { return NEXT(write)(fd, data, n); });
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  return Written(fd, size, [&](size_t n) { return NEXT(pwrite)(fd, data, n, at); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  return Written(fd, size, [&](size_t n) { return NEXT(pwrite64)(fd, data, n, at); });
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  return Written(fd, 0, [&](size_t) { return NEXT(writev)(fd, parts, count); });
}
ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t at) {
  return Written(fd, 0, [&](size_t) { return NEXT(pwritev)(fd, parts, count, at); });
}
int ftruncate(int fd, off_t size) noexcept {
  return Written(fd, 0, [&](size_t) { return NEXT(ftruncate)(fd, size); });
}
int ftruncate64(int fd, off64_t size) noexcept {
  return Written(fd, 0, [&](size_t) { return NEXT(ftruncate64)(fd, size); });
}

ssize_t read(int fd, void* data, size_t size) {
  return WasRead(fd, size, [&](size_t n) { return NEXT(read)(fd, data, n); });
}
ssize_t pread(int fd, void* data, size_t size, off_t at) {
  return WasRead(fd, size, [&](size_t n) { return NEXT(pread)(fd, data, n, at); });
}
ssize_t pread64(int fd, void* data, size_t size, off64_t at) {
  return WasRead(fd, size, [&](size_t n) { return NEXT(pread64)(fd, data, n, at); });
}

int fsync(int fd) {
  return Synced(fd, [&] { return NEXT(fsync)(fd); });
}
int fdatasync(int fd) {
  return Synced(fd, [&] { return NEXT(fdatasync)(fd); });
}

int rename(const char* from, const char* to) noexcept {
  return Moved(Kind::kRename, {AT_FDCWD, from}, {AT_FDCWD, to},
               [&] { return NEXT(rename)(from, to); });
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return Moved(Kind::kRename, {from_folder, from}, {to_folder, to},
               [&] { return NEXT(renameat)(from_folder, from, to_folder, to); });
}
int link(const char* from, const char* to) noexcept {
  return Moved(Kind::kLink, {AT_FDCWD, from}, {AT_FDCWD, to}, [&] { return NEXT(link)(from, to); });
}
int unlink(const char* path) noexcept {
  return Changed(Kind::kRemove, AT_FDCWD, path, [&] { return NEXT(unlink)(path); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return Changed(Kind::kRemove, folder, path, [&] { return NEXT(unlinkat)(folder, path, flags); });
}
int rmdir(const char* path) noexcept {
  return Changed(Kind::kRemove, AT_FDCWD, path, [&] { return NEXT(rmdir)(path); });
}
int remove(const char* path) noexcept {
  return Changed(Kind::kRemove, AT_FDCWD, path, [&] { return NEXT(remove)(path); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return Changed(Kind::kMakeFolder, AT_FDCWD, path, [&] { return NEXT(mkdir)(path, mode); });
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return Changed(Kind::kMakeFolder, folder, path,
                 [&] { return NEXT(mkdirat)(folder, path, mode); });
}

}  // extern "C"
// NOLINTEND
