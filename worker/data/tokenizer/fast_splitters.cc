// Each function follows its pattern's alternatives in order. What backtracking would do is written
// out where it happens, at white space.
#include "worker/data/tokenizer/fast_splitters.h"

#include <array>
#include <cstdint>

#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr std::array<CharClass, 128> AsciiClasses() {
  std::array<CharClass, 128> classes{};
  for (size_t c = 0; c < classes.size(); ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) classes[c] = CharClass::kLetter;
    if (c >= '0' && c <= '9') classes[c] = CharClass::kNumber;
    if ((c >= 9 && c <= 13) || c == ' ') classes[c] = CharClass::kSpace;
  }
  return classes;
}
constexpr std::array<CharClass, 128> kAscii = AsciiClasses();

struct Char {
  CharClass what;
  uint32_t bytes;
};

inline Char At(const char* p) {
  const auto byte = static_cast<unsigned char>(*p);
  if (byte < 0x80) return {kAscii[byte], 1};
  static const CharClass* const classes = CharClasses();
  const CodePoint point = DecodeUtf8(p);
  return {classes[point.code], point.bytes};
}

// The end of the run of characters of one class.
inline const char* RunEnd(const char* p, const char* end, CharClass what) {
  while (p < end) {
    const Char c = At(p);
    if (c.what != what) break;
    p += c.bytes;
  }
  return p;
}

// What \s+(?!\S)|\s+ takes of the white space [begin, stop): all of it at the end of the text, else
// all but its last character, which the next piece may begin with; a single one is a piece.
const char* SpaceEnd(const char* begin, const char* stop, const char* end) {
  if (stop == end) return stop;
  const char* last = stop - 1;
  while ((static_cast<unsigned char>(*last) & 0xC0) == 0x80) --last;
  return last > begin ? last : stop;
}

// 's 't 're 've 'm 'll 'd; nullptr where there is none. `*begin` is the apostrophe.
const char* ContractionEnd(const char* begin, const char* end, bool any_case) {
  const auto letter = [&](int i) {
    const char c = begin[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  const auto left = end - begin;
  if (left < 2) return nullptr;
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return begin + 2;
    case 'r':
    case 'v':
      return left > 2 && letter(2) == 'e' ? begin + 3 : nullptr;
    case 'l':
      return left > 2 && letter(2) == 'l' ? begin + 3 : nullptr;
    case '\xC5':  // U+017F, the long s: equal to s where case does not matter
      return any_case && left > 2 && begin[2] == '\xBF' ? begin + 3 : nullptr;
    default:
      return nullptr;
  }
}

const char* Gpt2(const char* begin, const char* end) {
  if (*begin == '\'') {
    const char* const contraction = ContractionEnd(begin, end, /*any_case=*/false);
    if (contraction != nullptr) return contraction;
  }
  const char* p = begin;
  if (*p == ' ' && p + 1 < end) ++p;
  const Char first = At(p);
  if (first.what != CharClass::kSpace) return RunEnd(p + first.bytes, end, first.what);
  return SpaceEnd(begin, RunEnd(begin, end, CharClass::kSpace), end);
}

inline bool IsLineEnd(char c) { return c == '\r' || c == '\n'; }

// \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last line end in the white space, if it has one.
const char* LinesEnd(const char* begin, const char* end) {
  const char* const stop = RunEnd(begin, end, CharClass::kSpace);
  for (const char* p = stop; p > begin; --p) {
    if (IsLineEnd(p[-1])) return p;
  }
  return SpaceEnd(begin, stop, end);
}

template <int kDigits>
const char* Llama3(const char* begin, const char* end) {
  if (*begin == '\'') {
    const char* const contraction = ContractionEnd(begin, end, /*any_case=*/true);
    if (contraction != nullptr) return contraction;
  }
  const Char first = At(begin);
  const char* const second = begin + first.bytes;
  if (first.what == CharClass::kLetter) return RunEnd(second, end, CharClass::kLetter);
  if (first.what == CharClass::kNumber) {
    const char* p = second;
    for (int digits = 1; digits < kDigits && p < end; ++digits) {
      const Char next = At(p);
      if (next.what != CharClass::kNumber) break;
      p += next.bytes;
    }
    return p;
  }
  Char next{CharClass::kSpace, 0};
  if (second < end) next = At(second);
  if (next.what == CharClass::kLetter && !IsLineEnd(*begin)) {
    return RunEnd(second + next.bytes, end, CharClass::kLetter);
  }
  if (first.what == CharClass::kOther || (*begin == ' ' && next.what == CharClass::kOther)) {
    const char* p = RunEnd(second, end, CharClass::kOther);
    while (p < end && IsLineEnd(*p)) ++p;
    return p;
  }
  return LinesEnd(begin, end);
}

}  // namespace

FastSplitter FindFastSplitter(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return Gpt2;
  if (pattern == kLlama3Pattern) return Llama3<3>;
  if (pattern == kQwen2Pattern) return Llama3<1>;
  return nullptr;
}

}  // namespace mt::data
