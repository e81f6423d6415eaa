// Ranges become one table of a byte per code point: a megabyte, of which text touches a few pages.
#include "worker/data/tokenizer/unicode.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace mt::data {
namespace {

// White_Space of PropList.txt.
constexpr CodeRange kSpaces[] = {
    {0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};

std::vector<CharClass> MakeClasses() {
  std::vector<CharClass> classes(kCodePoints, CharClass::kOther);
  const auto fill = [&](std::span<const CodeRange> ranges, CharClass what) {
    for (const CodeRange& range : ranges) {
      for (uint32_t code = range.first; code <= range.last; ++code) classes[code] = what;
    }
  };
  fill(LetterRanges(), CharClass::kLetter);
  fill(NumberRanges(), CharClass::kNumber);
  fill(kSpaces, CharClass::kSpace);
  return classes;
}

constexpr uint32_t kBlockBits = 8;

// By code point >> kBlockBits: whether some of the block have stand-ins, so that most text needs no
// search.
std::vector<bool> MakeStandInBlocks() {
  std::vector<bool> blocks(kCodePoints >> kBlockBits);
  for (const StandIn& range : StandIns()) {
    for (uint32_t block = range.first >> kBlockBits; block <= range.last >> kBlockBits; ++block)
      blocks[block] = true;
  }
  return blocks;
}

// Bytes of the valid code point at the front, 0 where there is none (RFC 3629 section 4).
size_t CodePointBytes(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  const size_t bytes = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  return bytes;
}

}  // namespace

const CharClass* CharClasses() {
  static const std::vector<CharClass> classes = MakeClasses();
  return classes.data();
}

uint32_t StandInOf(uint32_t code) {
  static const std::vector<bool> blocks = MakeStandInBlocks();
  if (!blocks[code >> kBlockBits]) return code;
  const std::span<const StandIn> ranges = StandIns();
  const auto behind = std::ranges::upper_bound(ranges, code, {}, &StandIn::first);
  if (behind == ranges.begin()) return code;
  const StandIn& range = *(behind - 1);
  return code <= range.last ? range.code : code;
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | (code >> 6));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

size_t ValidUtf8Prefix(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    while (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & kHighBits) != 0) break;
      at += sizeof(word);
    }
    if (at == text.size()) break;
    const size_t bytes = CodePointBytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

size_t InvalidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && CodePointBytes(text.substr(at)) == 0) ++at;
  return at;
}

}  // namespace mt::data
