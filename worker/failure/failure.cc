// The cause is a payload of one byte; a status without it takes the cause of its code.
#include "worker/failure/failure.h"

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "kernels/core/device.h"

namespace mt::failure {
namespace {

constexpr std::string_view kPayloadUrl = "megatrain/cause";

std::optional<Cause> PayloadOf(const Status& status) {
  const auto payload = status.GetPayload(base::ToAbsl(kPayloadUrl));
  if (!payload || payload->size() != 1) return std::nullopt;
  return static_cast<Cause>(std::string(*payload)[0]);
}

Cause CauseOfCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return Cause::kNone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kAlreadyExists:
      return Cause::kUserError;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kResourceExhausted:
      return Cause::kStorage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
      return Cause::kNetwork;
    default:
      return Cause::kInternal;
  }
}

}  // namespace

std::string_view Name(Cause cause) {
  switch (cause) {
    case Cause::kNone:
      return "NONE";
    case Cause::kUserError:
      return "USER_ERROR";
    case Cause::kOutOfMemory:
      return "OOM";
    case Cause::kNumeric:
      return "NUMERIC";
    case Cause::kHang:
      return "HANG";
    case Cause::kHardware:
      return "HARDWARE";
    case Cause::kNetwork:
      return "NETWORK";
    case Cause::kStorage:
      return "STORAGE";
    case Cause::kInternal:
      return "INTERNAL";
  }
  return "?";
}

Status WithCause(const Status& status, Cause cause) {
  if (status.ok() || PayloadOf(status)) return status;
  Status out = status;
  out.SetPayload(base::ToAbsl(kPayloadUrl), absl::Cord(std::string(1, static_cast<char>(cause))));
  return out;
}

Status StatusOfException() {
  try {
    throw;
  } catch (const kernels::DeviceMemoryError& error) {
    return WithCause(base::Error(absl::StatusCode::kResourceExhausted,
                                 "{}; does another process use the device too?", error.what()),
                     Cause::kOutOfMemory);
  } catch (const kernels::DeviceError& error) {
    return WithCause(base::Internal("device: {}", error.what()), Cause::kHardware);
  } catch (const std::bad_alloc&) {
    return WithCause(base::Error(absl::StatusCode::kResourceExhausted, "out of host memory"),
                     Cause::kOutOfMemory);
  } catch (const std::exception& error) {
    return base::Internal("{}", error.what());
  }
}

Cause CauseOf(const Status& status) {
  return PayloadOf(status).value_or(CauseOfCode(status.code()));
}

}  // namespace mt::failure
