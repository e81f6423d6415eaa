// Named roots: a job's paths are relative to folders of the worker's configuration and cannot leave
// them, not even through symbolic links. Functions block on the file system; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::spec {

// Absolute paths from the worker's flags; "" where a root is not configured.
struct Roots {
  std::string data_root;        // token files, tokenizers
  std::string checkpoint_root;  // checkpoints
  std::string log_root;         // rank logs, event files
  std::string cache_root;       // index cache; by default a folder below state
  std::string state;            // the worker's own state
};

// OK for a relative path without "..", empty components or NUL; else InvalidArgument.
[[nodiscard]] Status CheckRelative(std::string_view path);

// The path without empty components and ".", by which two spellings of one path are told to be
// one: "./a//b/" is "a/b", "." is "". Links are not looked at.
std::string OneSpelling(std::string_view path);

// The absolute path of `relative` below `root`. The part of it that exists is resolved with its
// symbolic links and must lie below root (a link that stays inside is fine); the remainder need not
// exist yet. InvalidArgument for absolute paths and "..", PermissionDenied for a link that leaves
// the root or leads nowhere (both are named, with what to do), FailedPrecondition where the root is
// unset or missing.
StatusOr<std::string> ResolveBelow(const std::string& root, std::string_view relative);

// Opens an existing file or folder below root by openat2(RESOLVE_BENEATH), so that a link that is
// swapped in meanwhile cannot lead outside; where the kernel or a container's filter of system
// calls does not have it, folder by folder without following links. `flags` are those of open(2),
// without O_CREAT. Errors as ResolveBelow and ErrnoError.
StatusOr<base::Fd> OpenBelow(const std::string& root, std::string_view relative, int flags);

// Opens files to be read that a job names, by OpenBelow: the opener for readers of whole paths. It
// refuses paths that do not begin with `root`, written as here or with its links resolved.
base::FileOpener BelowRoot(const std::string& root);

}  // namespace mt::spec
