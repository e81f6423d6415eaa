// One decoder of UTF-8 (RFC 3629), and what is shown of each code point.
#include "common/base/plain_text.h"

#include <algorithm>
#include <cstdint>

namespace mt::base {
namespace {

// A code point and its bytes; `bytes` is 0 where the text does not begin with one.
struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;
};

CodePoint Decode(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  uint32_t value = first & (0xFFU >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {};
    value = (value << 6U) | (byte(i) & 0x3FU);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kLeast[bytes] || value > 0x10FFFF || surrogate) return {};
  return {value, bytes};
}

bool IsControl(uint32_t c) { return c < 0x20 || (c >= 0x7F && c <= 0x9F); }

// Zero-width characters, line and paragraph separators, and marks of direction.
bool IsHidden(uint32_t c) {
  return (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2060 && c <= 0x2069) || c == 0x061C || c == 0xFEFF;
}

}  // namespace

std::string CleanText(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = Decode(text);
    const size_t bytes = std::max<size_t>(c.bytes, 1);
    if (c.bytes == 0 ||
        (IsControl(c.value) && c.value < 0x80 && c.value != '\n' && c.value != '\t')) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if ((IsControl(c.value) && c.value >= 0x80) || IsHidden(c.value)) {
      out += fmt::format("\\u{:04x}", c.value);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::string ControlIn(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = Decode(text);
    if (c.bytes == 0)
      return fmt::format("the byte 0x{:02x}, which is no UTF-8",
                         static_cast<unsigned char>(text[0]));
    if (IsControl(c.value) && c.value != '\n' && c.value != '\t')
      return fmt::format("the control character U+{:04X}", c.value);
    text.remove_prefix(c.bytes);
  }
  return "";
}

std::string CleanLine(std::string_view text) {
  std::string out = CleanText(text);
  std::replace(out.begin(), out.end(), '\n', ' ');
  std::replace(out.begin(), out.end(), '\t', ' ');
  return out;
}

std::string JsonQuoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < ' ') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool IsPlainText(std::string_view text) { return CleanLine(text) == text; }

Status CheckName(std::string_view what, std::string_view name, size_t max_bytes) {
  const bool bad = name.empty() || name.size() > max_bytes || !IsPlainText(name) ||
                   name.find_first_of("/ ") != std::string_view::npos || name.front() == '-' ||
                   name == "." || name == "..";
  if (!bad) return OkStatus();
  return InvalidArgument(
      "{} has 1 to {} bytes of readable text without '/' and blanks, does not begin with '-', and "
      "is neither . nor ..; not '{}'",
      what, max_bytes, CleanLine(name.substr(0, max_bytes)));
}

Status CheckLabel(std::string_view what, std::string_view name, std::string_view value) {
  if (name.empty() || name.front() == '-' || name == "." || name == "..") {
    return InvalidArgument("{}: a label cannot be named '{}'", what, CleanLine(name));
  }
  if (IsPlainText(name) && IsPlainText(value)) return OkStatus();
  return InvalidArgument("{}: label '{}' = '{}' has a control character", what, CleanLine(name),
                         CleanLine(value));
}

}  // namespace mt::base
