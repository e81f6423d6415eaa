// Expected failures (I/O, network, configuration, a lost peer) are an absl::Status, whose codes are
// those of gRPC. A message says what failed, where (path, rank, step) and what to do about it. Bugs
// abort by CHECK (common/base/check.h).
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>

namespace mt {

using absl::Status;
using absl::StatusOr;

inline Status OkStatus() { return absl::OkStatus(); }

namespace base {

// Debian builds absl with its own string_view type; these convert between it and std::string_view.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }

// Makes a Status of `code` from a fmt format string: Error(absl::StatusCode::kNotFound, "no file
// {}", path). The functions below fix the code.
template <class... Args>
Status Error(absl::StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, ToAbsl(fmt::format(format, std::forward<Args>(args)...))};
}
template <class... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
}
template <class... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kNotFound, format, std::forward<Args>(args)...);
}
template <class... Args>
Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kFailedPrecondition, format, std::forward<Args>(args)...);
}
template <class... Args>
Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kUnavailable, format, std::forward<Args>(args)...);
}
template <class... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kInternal, format, std::forward<Args>(args)...);
}
template <class... Args>
Status DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kDataLoss, format, std::forward<Args>(args)...);
}

// Makes a Status from errno: "open /x/y: No space left on device". The code is kNotFound for
// ENOENT, kAlreadyExists for EEXIST, kPermissionDenied for EACCES, EPERM and EROFS,
// kResourceExhausted for ENOSPC and exhausted descriptors or memory, kUnavailable for refused and
// broken connections, kInvalidArgument for EINVAL; kInternal for what is not listed in status.cc.
Status ErrnoError(int error_number, std::string_view what);

// The same code with "prefix: " before the message, without payloads; OK stays OK.
Status Annotate(const Status& status, std::string_view prefix);

// The status's message as a std::string.
inline std::string Message(const Status& status) { return std::string(ToStd(status.message())); }

}  // namespace base
}  // namespace mt

#define MT_CONCAT_INNER(a, b) a##b
#define MT_CONCAT(a, b) MT_CONCAT_INNER(a, b)

// NOLINTBEGIN(bugprone-macro-parentheses): tmp and lhs are names and declarations.
// The names contain the line number, so that nested uses do not shadow each other.
#define RETURN_IF_ERROR(expr) MT_RETURN_IF_ERROR(MT_CONCAT(mt_status_, __LINE__), expr)
#define MT_RETURN_IF_ERROR(tmp, expr) \
  do {                                \
    ::absl::Status tmp = (expr);      \
    if (!tmp.ok()) return tmp;        \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) \
  MT_ASSIGN_OR_RETURN(MT_CONCAT(mt_statusor_, __LINE__), lhs, expr)
#define MT_ASSIGN_OR_RETURN(tmp, lhs, expr)      \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()
// NOLINTEND(bugprone-macro-parentheses)
