// Numbers as users write them: "1.5B" tokens, "64MiB", "15m", "5%". Exact: a text that does not
// denote a whole count is refused, never rounded. nullopt means that the text has another form or
// its value does not fit. Any bytes are safe. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mt::spec {

std::optional<int64_t> ParseInteger(std::string_view text);  // "12", "-3", "1e6"
std::optional<int64_t> ParseCount(std::string_view text);    // also K M B T: 10^3 6 9 12
std::optional<int64_t> ParseBytes(
    std::string_view text);  // also B, KB.. TB: 10^3.., KiB.. TiB: 2^10..
std::optional<int64_t> ParseDuration(
    std::string_view text);  // to milliseconds: ms s m h d, "1h30m"; a bare 0 too
std::optional<double> ParseReal(std::string_view text);  // finite
std::string FormatBytes(int64_t bytes);                  // the largest binary unit that divides it
std::string FormatDuration(int64_t milliseconds);        // the largest unit that divides it

// A length: a count, or a percentage (0 to 100) of another length. Exactly one member holds.
struct Length {
  bool is_percent = false;
  int64_t count = 0;
  double percent = 0;
};
std::optional<Length> ParseLength(std::string_view text);
std::string FormatLength(const Length& length);

// a * b for a, b >= 0, or the largest int64 where the product does not fit.
int64_t SaturatingProduct(int64_t a, int64_t b);

}  // namespace mt::spec
