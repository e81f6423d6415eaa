// An error keeps its offset and its words apart from the message, which is made of both.
#include "worker/data/tokenizer/tokenizer.h"

#include <charconv>

#include <absl/strings/cord.h>

namespace mt::data {
namespace {

constexpr std::string_view kOffsetPayload = "megatrain/text-offset";

std::string Prefix(int64_t offset) { return fmt::format("at offset {}: ", offset); }

}  // namespace

Status ErrorAt(int64_t offset, std::string_view what) {
  Status error = base::InvalidArgument("{}{}", Prefix(offset), what);
  error.SetPayload(base::ToAbsl(kOffsetPayload), absl::Cord(std::to_string(offset)));
  return error;
}

std::optional<int64_t> OffsetOf(const Status& error) {
  const auto payload = error.GetPayload(base::ToAbsl(kOffsetPayload));
  if (!payload.has_value()) return std::nullopt;
  const std::string digits(*payload);
  int64_t offset = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), offset);
  return offset;
}

Status Moved(const Status& error, int64_t bytes) {
  const std::optional<int64_t> offset = OffsetOf(error);
  if (!offset.has_value()) return error;
  return ErrorAt(*offset + bytes, base::Message(error).substr(Prefix(*offset).size()));
}

}  // namespace mt::data
