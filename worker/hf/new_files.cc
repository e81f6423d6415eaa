// Two exports to one name are two whole files, of which the later one replaces the other or is
// refused; neither ever sees what the other has not finished.
#include "worker/hf/new_files.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "common/base/ids.h"

namespace mt::hf {
namespace {

// Gives a file a name that no other has.
Status NameNew(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0)
    return OkStatus();
  int error = errno;
  // File servers may not know the flag. Neither does a link replace a file; some have no links.
  if (error == EINVAL || error == ENOSYS || error == EOPNOTSUPP) {
    if (::link(from.c_str(), to.c_str()) == 0) {
      ::unlink(from.c_str());
      return OkStatus();
    }
    error = errno;
    if (error != EEXIST && !base::Exists(to)) {
      if (std::rename(from.c_str(), to.c_str()) == 0) return OkStatus();
      error = errno;
    }
  }
  if (error != EEXIST) return base::ErrnoError(error, "rename " + from + " to " + to);
  return base::Error(absl::StatusCode::kAlreadyExists,
                     "{} has come to be there meanwhile: name another place, or --overwrite", to);
}

}  // namespace

NewFiles::NewFiles(std::string folder) : folder_(std::move(folder)) {}

NewFiles::~NewFiles() {
  for (const NewFile& file : files_) {
    if (!file.named) ::unlink(file.path.c_str());
  }
}

std::string NewFiles::Add(const std::string& name) {
  std::string path = base::JoinPath(folder_, name + ".partial-" + base::RandomHex(8));
  files_.push_back({.name = name, .path = path});
  return path;
}

Status NewFiles::AddText(const std::string& name, std::string_view text) {
  return base::WriteFileAtomic(Add(name), text);
}

Status NewFiles::Commit(const std::function<bool(const std::string& name)>& keeps) {
  // Only asks: without locks two that replace one model at once may mix their files.
  lock_ = base::Fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock_) (void)::flock(lock_.get(), LOCK_EX);
  for (NewFile& file : files_) {
    if (!keeps || !keeps(file.name)) continue;
    Status named = NameNew(file.path, PathOf(file));
    if (!named.ok()) {
      Withdraw();
      return named;
    }
    file.named = true;
  }
  for (NewFile& file : files_) {
    if (file.named) continue;
    if (std::rename(file.path.c_str(), PathOf(file).c_str()) != 0)
      return base::ErrnoError(errno, "rename " + file.path);
    file.named = true;
  }
  return base::SyncDir(folder_);
}

void NewFiles::Withdraw() {
  for (NewFile& file : files_) {
    if (!file.named) continue;
    ::unlink(PathOf(file).c_str());
    file.named = false;
  }
}

std::vector<std::string> NewFiles::names() const {
  std::vector<std::string> out;
  out.reserve(files_.size());
  for (const NewFile& file : files_) out.push_back(file.name);
  return out;
}

}  // namespace mt::hf
