// Strings of a job with a form of their own. Internal to common/spec. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace mt::spec {

// [a-z0-9-]{1,63}
bool IsName(std::string_view text);
// "29500-29600" -> first and last, 1 to 65535, first <= last; one port alone is a range of one.
std::optional<std::pair<uint16_t, uint16_t>> ParsePortRange(std::string_view text);
// "969,30,1" -> three shares, missing ones 0; none negative, the first above 0.
std::optional<std::vector<double>> ParseSplit(std::string_view text);
// At commas, with spaces around the parts dropped. "" has no parts.
std::vector<std::string_view> SplitList(std::string_view text);

}  // namespace mt::spec
