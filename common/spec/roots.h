// Named roots: a job's paths are relative to folders of the worker's configuration and cannot leave
// them, not even through symbolic links. Blocking file system calls; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::spec {

struct Roots {
  std::string data_root;        // token files, tokenizers
  std::string checkpoint_root;  // checkpoints
  std::string log_root;         // rank logs, event files
  std::string cache_root;       // index cache; default: below state
  std::string state;            // the worker's own
};

// OK for a relative path without "..", empty parts or NUL.
[[nodiscard]] Status CheckRelative(std::string_view path);

// Absolute path of `relative` below `root`. What exists of it is resolved with its symbolic links
// and must lie below root (a link that stays inside is fine); the rest may not exist yet.
// InvalidArgument for absolute paths and "..", PermissionDenied for a way out, FailedPrecondition
// where the root is unset or missing.
StatusOr<std::string> ResolveBelow(const std::string& root, std::string_view relative);

// Opens an existing file or folder below root with openat2(RESOLVE_BENEATH), so that a link swapped
// in between cannot lead out; on kernels without it, ResolveBelow and open. `flags` as for open(2),
// no O_CREAT.
StatusOr<base::Fd> OpenBelow(const std::string& root, std::string_view relative, int flags);

}  // namespace mt::spec
