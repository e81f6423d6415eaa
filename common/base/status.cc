// The one table from errno to the canonical status codes.
#include "common/base/status.h"

#include <cerrno>
#include <system_error>

namespace mt::base {

Status ErrnoError(int error_number, std::string_view what) {
  const std::string text =
      fmt::format("{}: {}", what, std::generic_category().message(error_number));
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EEXIST:
      return absl::AlreadyExistsError(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(text);
    case ETIMEDOUT:
      return absl::DeadlineExceededError(text);
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EADDRINUSE:
      return absl::UnavailableError(text);
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return absl::InvalidArgumentError(text);
    default:
      return absl::InternalError(text);
  }
}

Status Annotate(const Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  return {status.code(), ToAbsl(fmt::format("{}: {}", prefix, ToStd(status.message())))};
}

}  // namespace mt::base
