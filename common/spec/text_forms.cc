// Parsers of the few string forms that are neither numbers nor enum values.
#include "common/spec/text_forms.h"

#include <algorithm>

#include "common/spec/number.h"

namespace mt::spec {
namespace {

std::string_view Trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::optional<uint16_t> ParsePort(std::string_view text) {
  const bool digits =
      !text.empty() && text.size() <= 5 &&
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const std::optional<int64_t> value = digits ? ParseInteger(text) : std::nullopt;
  if (!value || *value < 1 || *value > 65535) return std::nullopt;
  return static_cast<uint16_t>(*value);
}

}  // namespace

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::optional<std::pair<uint16_t, uint16_t>> ParsePortRange(std::string_view text) {
  const size_t dash = text.find('-');
  const std::optional<uint16_t> first = ParsePort(text.substr(0, dash));
  const std::optional<uint16_t> last =
      dash == std::string_view::npos ? first : ParsePort(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return std::pair(*first, *last);
}

std::optional<std::vector<double>> ParseSplit(std::string_view text) {
  std::vector<double> out;
  for (const std::string_view part : SplitList(text)) {
    const std::optional<double> share = ParseReal(part);
    if (!share || *share < 0 || out.size() == 3) return std::nullopt;
    out.push_back(*share);
  }
  out.resize(3);
  if (out[0] <= 0 || out[0] + out[1] + out[2] > 1e300) return std::nullopt;
  return out;
}

std::vector<std::string_view> SplitList(std::string_view text) {
  std::vector<std::string_view> out;
  if (Trim(text).empty()) return out;
  for (;;) {
    const size_t comma = text.find(',');
    out.push_back(Trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace mt::spec
