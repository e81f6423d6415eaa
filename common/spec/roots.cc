// Path resolution against symbolic links, component by component, or by the kernel (openat2).
#include "common/spec/roots.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <linux/openat2.h>
#include <memory>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/base/plain_text.h"
#include "common/spec/tree.h"

namespace mt::spec {
namespace {

std::vector<std::string> Components(std::string_view path) {
  std::vector<std::string> out;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (!part.empty() && part != ".") out.emplace_back(part);
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return out;
}

StatusOr<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) return base::ErrnoError(errno, path);
  return std::string(real.get());
}

StatusOr<std::string> RealRoot(const std::string& root) {
  if (root.empty())
    return base::FailedPrecondition("the worker has no root configured for this path");
  const StatusOr<std::string> real = RealPath(root);
  if (!real.ok()) return base::FailedPrecondition("root {}", base::Message(real.status()));
  return *real;
}

bool IsBelow(const std::string& path, const std::string& root) {
  return root == "/" || path == root ||
         (path.starts_with(root) && path.size() > root.size() && path[root.size()] == '/');
}

// What is wrong with a link that leaves the root or cannot be followed.
Status RefusedLink(const std::string& link, const std::string& root) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(link, error).string();
  if (const StatusOr<std::string> real = RealPath(link); !real.ok()) {
    return base::Error(absl::StatusCode::kPermissionDenied,
                       "{} is a link to {}, which cannot be followed ({}): mend or remove the link",
                       link, base::CleanLine(target), base::Message(real.status()));
  }
  return base::Error(absl::StatusCode::kPermissionDenied,
                     "{} is a link to {}, outside of the root {}: copy what it names below the "
                     "root, or give the worker a root that holds both",
                     link, base::CleanLine(target), root);
}

// openat2 where the kernel has it; `below` has no link and no "..".
long OpenBeneath(const base::Fd& folder, const std::string& below, int flags) {
  struct open_how how {};
  how.flags = static_cast<__u64>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  return ::syscall(SYS_openat2, folder.get(), below.c_str(), &how, sizeof(how));
}

// The same without openat2: a descriptor of each folder on the way, none of them a link.
StatusOr<base::Fd> OpenStepByStep(base::Fd folder, const std::string& below, int flags,
                                  const std::string& path) {
  std::vector<std::string> parts = Components(below);
  const std::string last = parts.empty() ? "." : parts.back();
  if (!parts.empty()) parts.pop_back();
  for (const std::string& part : parts) {
    base::Fd next(
        ::openat(folder.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return base::ErrnoError(errno, "open " + path);
    folder = std::move(next);
  }
  base::Fd file(::openat(folder.get(), last.c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return base::ErrnoError(errno, "open " + path);
  return file;
}

}  // namespace

Status CheckRelative(std::string_view path) {
  if (path.empty()) return base::InvalidArgument("an empty path");
  if (path.find('\0') != std::string_view::npos)
    return base::InvalidArgument("a path with a NUL byte");
  if (path.front() == '/') {
    return base::InvalidArgument("\"{}\" is absolute; give a path below the worker's root",
                                 Shown(path));
  }
  for (const std::string& part : Components(path)) {
    if (part == "..") {
      return base::InvalidArgument("\"{}\" has \"..\"; give a path below the worker's root",
                                   Shown(path));
    }
  }
  return OkStatus();
}

std::string OneSpelling(std::string_view path) {
  std::string out = path.starts_with('/') ? "/" : "";
  for (const std::string& part : Components(path)) {
    if (!out.empty() && out.back() != '/') out += '/';
    out += part;
  }
  return out;
}

StatusOr<std::string> ResolveBelow(const std::string& root, std::string_view relative) {
  RETURN_IF_ERROR(CheckRelative(relative));
  ASSIGN_OR_RETURN(const std::string top, RealRoot(root));
  std::string current = top;
  bool exists = true;
  for (const std::string& part : Components(relative)) {
    current = base::JoinPath(current, part);
    if (!exists) continue;
    struct stat info {};
    if (::lstat(current.c_str(), &info) != 0) {
      if (errno != ENOENT) return base::ErrnoError(errno, current);
      exists = false;
      continue;
    }
    if (!S_ISLNK(info.st_mode)) continue;
    // Whoever creates the file would follow a dangling link, so a link must resolve already.
    const StatusOr<std::string> real = RealPath(current);
    if (!real.ok() || !IsBelow(*real, top)) return RefusedLink(current, top);
    current = *real;
  }
  return current;
}

StatusOr<base::Fd> OpenBelow(const std::string& root, std::string_view relative, int flags) {
  ASSIGN_OR_RETURN(const std::string top, RealRoot(root));
  ASSIGN_OR_RETURN(const std::string path, ResolveBelow(root, relative));
  base::Fd folder(::open(top.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return base::ErrnoError(errno, "open " + top);
  const size_t skipped = top == "/" ? 1 : top.size() + 1;
  const std::string below = path.size() <= skipped ? std::string(".") : path.substr(skipped);
  const long fd = OpenBeneath(folder, below, flags);
  if (fd >= 0) return base::Fd(static_cast<int>(fd));
  // Filters of containers that do not know the call answer EPERM; a true EPERM comes again below.
  if (errno == ENOSYS || errno == EPERM) {
    return OpenStepByStep(std::move(folder), below, flags, path);
  }
  return base::ErrnoError(errno, "open " + path);
}

base::FileOpener BelowRoot(const std::string& root) {
  return [root](const std::string& path) -> StatusOr<base::Fd> {
    ASSIGN_OR_RETURN(const std::string top, RealRoot(root));
    const std::string given = root.substr(0, root.find_last_not_of('/') + 1);  // "" for "/"
    for (const std::string& start : {given, top}) {
      if (!IsBelow(path, start)) continue;
      const std::string_view rest = std::string_view(path).substr(start.size());
      const size_t name = rest.find_first_not_of('/');
      // O_NONBLOCK, so that opening a named pipe returns.
      return OpenBelow(root, name == std::string_view::npos ? "." : rest.substr(name),
                       O_RDONLY | O_NONBLOCK);
    }
    return base::InvalidArgument("{} is not below the root {}", path, root);
  };
}

}  // namespace mt::spec
