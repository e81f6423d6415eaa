// Strings of a job that have a form of their own. nullopt: the text has another form. Internal to
// common/spec. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace mt::spec {

// True for [a-z0-9-]{1,63}.
bool IsName(std::string_view text);
// First and last port of "29500-29600", within 1 to 65535 and first <= last; a single port is a
// range of one.
std::optional<std::pair<uint16_t, uint16_t>> ParsePortRange(std::string_view text);
// The three shares of "969,30,1"; missing ones are 0, none is negative, the first is above 0.
std::optional<std::vector<double>> ParseSplit(std::string_view text);
// The parts between commas without surrounding spaces. "" has no parts.
std::vector<std::string_view> SplitList(std::string_view text);

}  // namespace mt::spec
