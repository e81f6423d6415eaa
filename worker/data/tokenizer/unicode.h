// What splitting text needs of Unicode: classes of code points, and where bytes are UTF-8. The
// tables are those of Unicode 16.0.0, whatever the machine. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mt::data {

inline constexpr std::string_view kUnicodeVersion = "16.0.0";
inline constexpr uint32_t kCodePoints = 0x110000;

struct CodeRange {
  uint32_t first, last;
};
std::span<const CodeRange> LetterRanges();
std::span<const CodeRange> NumberRanges();

// For each of [first, last]: a code point of the same general category and as many bytes of UTF-8
// that PCRE2 knows as Unicode 16 does, if its tables are of 14, 15 or 16.
struct StandIn {
  uint32_t first, last, code;
};
std::span<const StandIn> StandIns();
// The stand-in of a code point; where it needs none, itself.
uint32_t StandInOf(uint32_t code);

// \p{L}, \p{N} and \s (White_Space) exclude each other.
enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };
// The class of each code point; kCodePoints entries, made on the first call.
const CharClass* CharClasses();

struct CodePoint {
  uint32_t code;
  uint32_t bytes;
};
// The code point at `p`, which is the begin of one in valid UTF-8.
inline CodePoint DecodeUtf8(const char* p) {
  const auto at = [p](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (at(1) & 0x3F), 2};
  if (lead < 0xF0) return {((lead & 0x0F) << 12) | ((at(1) & 0x3F) << 6) | (at(2) & 0x3F), 3};
  return {((lead & 0x07) << 18) | ((at(1) & 0x3F) << 12) | ((at(2) & 0x3F) << 6) | (at(3) & 0x3F),
          4};
}
void AppendUtf8(uint32_t code, std::string* out);

// Bytes of the longest prefix that is valid UTF-8 (no surrogates, nothing overlong).
size_t ValidUtf8Prefix(std::string_view text);
// Bytes of the longest prefix in which no valid code point begins.
size_t InvalidUtf8Prefix(std::string_view text);

}  // namespace mt::data
