// Written as it comes and never synced: after a crash of its node a job is run again.
#include "worker/decode/job/output_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "worker/decode/text_stream.h"

namespace mt::decode {

namespace {

bool IsDevice(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISCHR(info.st_mode);
}

StatusOr<base::Fd> OpenNew(const std::string& path) {
  if (IsDevice(path)) {
    base::Fd device(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!device) return base::ErrnoError(errno, "open " + path);
    return device;
  }
  constexpr int kMode = 0640;  // as logs
  const std::string made = path + ".new";
  ::unlink(made.c_str());  // of a process that ended between both calls
  base::Fd fd(::open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode));
  if (!fd) return base::ErrnoError(errno, "create " + made);
  if (::rename(made.c_str(), path.c_str()) != 0)
    return base::ErrnoError(errno, fmt::format("rename {} to {}", made, path));
  return fd;
}

}  // namespace

StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path,
                                                         int64_t most_bytes) {
  ASSIGN_OR_RETURN(base::Fd fd, OpenNew(path));
  return std::unique_ptr<OutputFile>(new OutputFile(std::move(fd), path, most_bytes));
}

Status OutputFile::Append(std::string_view text) {
  if (full_) return OkStatus();
  const auto room = static_cast<size_t>(most_bytes_ - bytes_);
  if (text.size() > room) {
    full_ = true;
    text = text.substr(0, room);
    text.remove_suffix(UnfinishedBytes(text));
  }
  while (!text.empty()) {
    const ssize_t written = ::write(fd_.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return base::ErrnoError(errno, "write " + path_);
    bytes_ += written;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return OkStatus();
}

}  // namespace mt::decode
