// chmod(2) towards fewer permissions only.
#include "worker/node/process/log_access.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"

namespace mt::node {
namespace {

void Close(const std::string& path, unsigned most) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return;
  const unsigned mode = info.st_mode & 07777U;
  if (S_ISLNK(info.st_mode) || (mode & ~most) == 0) return;
  if (::chmod(path.c_str(), mode & most) == 0) return;
  log::Warn("a log stays open to others", {{"path", path}, {"why", std::strerror(errno)}});
}

}  // namespace

void CloseLogToOthers(const std::string& log_file) {
  Close(std::filesystem::path(log_file).parent_path().string(), kLogFolderMode);
  Close(log_file, kLogMode);
}

}  // namespace mt::node
