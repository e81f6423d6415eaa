// Decimal arithmetic on 18 significant digits in 128 bits: "0.1M" is exactly 100000, whatever
// binary floating point makes of it.
#include "common/spec/number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>

namespace mt::spec {
namespace {

__extension__ using Wide = __int128;

struct Suffix {
  std::string_view text;
  int64_t factor;
};

constexpr int64_t kKibi = 1024;
constexpr Suffix kNoSuffix[] = {{"", 1}};
constexpr Suffix kCountSuffixes[] = {
    {"", 1}, {"K", 1'000}, {"M", 1'000'000}, {"B", 1'000'000'000}, {"T", 1'000'000'000'000}};
constexpr Suffix kByteSuffixes[] = {{"TiB", kKibi* kKibi* kKibi* kKibi},
                                    {"GiB", kKibi* kKibi* kKibi},
                                    {"MiB", kKibi* kKibi},
                                    {"KiB", kKibi},
                                    {"B", 1},
                                    {"", 1},
                                    {"KB", 1'000},
                                    {"MB", 1'000'000},
                                    {"GB", 1'000'000'000},
                                    {"TB", 1'000'000'000'000}};
constexpr Suffix kDurationSuffixes[] = {
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The value mantissa * 10^exponent, exactly.
struct Decimal {
  int64_t mantissa = 0;
  int exponent = 0;
};

// Reads digits with at most one point. At most 18 digits are significant, so that the product with
// any factor fits 128 bits.
std::optional<Decimal> ParseDigits(std::string_view text) {
  Decimal out;
  bool point = false;
  bool any = false;
  for (const char c : text) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (!IsDigit(c) || out.mantissa >= 100'000'000'000'000'000 || out.exponent < -30) {
      return std::nullopt;
    }
    any = true;
    out.mantissa = out.mantissa * 10 + (c - '0');
    if (point) --out.exponent;
  }
  if (!any) return std::nullopt;
  return out;
}

std::optional<Decimal> ParseDecimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const size_t e = text.find_first_of("eE");
  std::optional<Decimal> out = ParseDigits(text.substr(0, e));
  if (!out) return std::nullopt;
  if (e != std::string_view::npos) {
    std::string_view exponent = text.substr(e + 1);
    if (exponent.starts_with('+')) exponent.remove_prefix(1);
    int value = 0;
    const auto [end, error] =
        std::from_chars(exponent.data(), exponent.data() + exponent.size(), value);
    if (error != std::errc() || end != exponent.data() + exponent.size()) return std::nullopt;
    if (value < -30 || value > 18) return std::nullopt;
    out->exponent += value;
  }
  if (negative) out->mantissa = -out->mantissa;
  return out;
}

// decimal * factor as an integer; nullopt where it is not whole or does not fit.
std::optional<int64_t> Whole(const Decimal& decimal, int64_t factor) {
  Wide value = static_cast<Wide>(decimal.mantissa) * factor;
  for (int i = 0; i > decimal.exponent; --i) {
    if (value % 10 != 0) return std::nullopt;
    value /= 10;
  }
  for (int i = 0; i < decimal.exponent; ++i) {
    value *= 10;
    if (value > std::numeric_limits<int64_t>::max() ||
        value < std::numeric_limits<int64_t>::min()) {
      return std::nullopt;
    }
  }
  if (value > std::numeric_limits<int64_t>::max() || value < std::numeric_limits<int64_t>::min()) {
    return std::nullopt;
  }
  return static_cast<int64_t>(value);
}

std::optional<int64_t> ParseWithSuffix(std::string_view text, std::span<const Suffix> suffixes) {
  size_t letters = text.size();
  while (letters > 0 && IsLetter(text[letters - 1])) --letters;
  const std::string_view word = text.substr(letters);
  const auto it = std::find_if(suffixes.begin(), suffixes.end(),
                               [&](const Suffix& suffix) { return suffix.text == word; });
  if (it == suffixes.end()) return std::nullopt;
  const std::optional<Decimal> decimal = ParseDecimal(text.substr(0, letters));
  if (!decimal) return std::nullopt;
  return Whole(*decimal, it->factor);
}

std::string FormatWithSuffix(int64_t value, std::span<const Suffix> suffixes) {
  for (const Suffix& suffix : suffixes) {
    if (value % suffix.factor == 0) return fmt::format("{}{}", value / suffix.factor, suffix.text);
  }
  return fmt::format("{}", value);
}

}  // namespace

std::optional<int64_t> ParseInteger(std::string_view text) {
  // Tried first because it covers the whole range; the decimal form keeps 18 digits.
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return ParseWithSuffix(text, kNoSuffix);
}

std::optional<int64_t> ParseCount(std::string_view text) {
  return ParseWithSuffix(text, kCountSuffixes);
}

std::optional<int64_t> ParseBytes(std::string_view text) {
  return ParseWithSuffix(text, kByteSuffixes);
}

std::optional<int64_t> ParseDuration(std::string_view text) {
  if (text == "0") return 0;
  int64_t total = 0;
  do {
    size_t end = 0;
    while (end < text.size() && !IsLetter(text[end])) ++end;
    while (end < text.size() && IsLetter(text[end])) ++end;
    const std::optional<int64_t> part = ParseWithSuffix(text.substr(0, end), kDurationSuffixes);
    if (!part || *part < 0 || *part > std::numeric_limits<int64_t>::max() - total) {
      return std::nullopt;
    }
    total += *part;
    text.remove_prefix(end);
  } while (!text.empty());
  return total;
}

std::optional<double> ParseReal(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::string FormatBytes(int64_t bytes) {
  if (bytes == 0) return "0B";
  return FormatWithSuffix(bytes, std::span(kByteSuffixes).first(5));
}

std::string FormatDuration(int64_t milliseconds) {
  if (milliseconds == 0) return "0s";
  return FormatWithSuffix(milliseconds, kDurationSuffixes);
}

std::optional<Length> ParseLength(std::string_view text) {
  if (text.ends_with('%')) {
    const std::optional<double> percent = ParseReal(text.substr(0, text.size() - 1));
    if (!percent || *percent < 0 || *percent > 100) return std::nullopt;
    return Length{.is_percent = true, .percent = *percent};
  }
  const std::optional<int64_t> count = ParseCount(text);
  if (!count || *count < 0) return std::nullopt;
  return Length{.count = *count};
}

std::string FormatLength(const Length& length) {
  return length.is_percent ? fmt::format("{}%", length.percent) : fmt::format("{}", length.count);
}

int64_t SaturatingProduct(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}

}  // namespace mt::spec
