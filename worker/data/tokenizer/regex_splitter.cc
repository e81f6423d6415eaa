// The pattern is compiled with PCRE2's just-in-time compiler where the machine allows it, and means
// Unicode by \p, \s and \d.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "worker/data/tokenizer/regex_splitter.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <pcre2.h>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;

struct Freer {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <class T>
using Owned = std::unique_ptr<T, Freer>;

std::string ErrorText(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// What Oniguruma, the regular expressions of the tokenizers library, takes for something else than
// PCRE2 does: the pieces would silently be others.
Status MeansAnother(std::string_view what, size_t at, std::string_view instead) {
  return base::InvalidArgument(
      "the pattern has {} at offset {}, which means something else to the tokenizers library: not "
      "supported; {}",
      what, at, instead);
}

// Letters, digits and marks of a word, and blanks, differ; Oniguruma knows no quoting.
Status CheckEscape(std::string_view left, size_t at) {
  constexpr std::string_view kOthers = "wWbBhHvVQ";
  if (left.size() < 2 || kOthers.find(left[1]) == std::string_view::npos) return OkStatus();
  return MeansAnother(fmt::format("'{}'", left.substr(0, 2)), at,
                      "write the characters, as in [\\p{L}\\p{N}_]");
}

// The bytes of the escape at the front of `left`, with its braces.
size_t EscapeBytes(std::string_view left) {
  constexpr std::string_view kBraced = "pPxogkN";
  if (left.size() < 3 || left[2] != '{' || kBraced.find(left[1]) == std::string_view::npos)
    return 2;
  return std::min(left.find('}'), left.size() - 1) + 1;
}

// A number of times at the front of `left`, and what stands behind it.
Status CheckTimes(std::string_view left, size_t at) {
  const size_t end = left.find_first_not_of("0123456789,", 1);
  if (end == std::string_view::npos || left[end] != '}') return OkStatus();
  const std::string_view times = left.substr(0, end + 1);
  const char behind = end + 1 < left.size() ? left[end + 1] : '\0';
  if (times.starts_with("{,") || behind == '+' ||
      (behind == '?' && times.find(',') == std::string_view::npos)) {
    const bool more = behind == '+' || behind == '?';
    return MeansAnother(fmt::format("'{}'", left.substr(0, end + (more ? 2 : 1))), at,
                        "write {n}, {n,} or {n,m} alone");
  }
  return OkStatus();
}

// Options at the front of `left`.
Status CheckOptions(std::string_view left, size_t at) {
  const size_t end =
      left.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-", 2);
  if (!left.starts_with("(?") || end == std::string_view::npos) return OkStatus();
  if ((left[end] != ':' && left[end] != ')') ||
      left.substr(0, end).find_first_not_of("ix-", 2) == std::string_view::npos) {
    return OkStatus();
  }
  return MeansAnother(fmt::format("'{}'", left.substr(0, end + 1)), at,
                      "of options i and x alone are");
}

// What stands at `at`, outside of classes.
Status CheckOutside(std::string_view left, size_t at) {
  switch (left[0]) {
    case '^':
    case '$':
      return MeansAnother(fmt::format("'{}'", left[0]), at,
                          "write '\\A' or '\\z' where the begin or end of the text is meant");
    case '{':
      return CheckTimes(left, at);
    case '(':
      return CheckOptions(left, at);
    default:
      return OkStatus();
  }
}

// The library takes [ within a class for a class of its own and && for what two have in common.
Status CheckWithin(std::string_view left, size_t at) {
  if (left[0] != '[' && !left.starts_with("&&")) return OkStatus();
  return base::InvalidArgument(
      "the pattern has a class within a class ('[' or '&&' at offset {}): not supported; write "
      "'\\[' where the character is meant",
      at);
}

Status RefuseOtherMeanings(std::string_view pattern) {
  bool in_class = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const std::string_view left = pattern.substr(at);
    if (left[0] == '\\') {
      RETURN_IF_ERROR(CheckEscape(left, at));
      at += EscapeBytes(left) - 1;
    } else if (in_class) {
      RETURN_IF_ERROR(CheckWithin(left, at));
      in_class = left[0] != ']';
    } else if (left[0] == '[') {
      in_class = true;
      if (left.starts_with("[^")) ++at;
      if (pattern.substr(at + 1).starts_with("]")) ++at;  // the first is a character
    } else {
      RETURN_IF_ERROR(CheckOutside(left, at));
    }
  }
  return OkStatus();
}

// The library cuts at a match of nothing, too, which is not what is left out here.
Status RefuseEmptyMatches(const pcre2_code* code) {
  uint32_t may_be_empty = 0;
  (void)pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  if (may_be_empty == 0) return OkStatus();
  return base::InvalidArgument(
      "the pattern may match an empty text, at which the tokenizers library cuts: not supported; "
      "write it so that each alternative takes a character");
}

// What PCRE2 is to see of a text that is valid UTF-8: the text, or a copy of the same size with
// stand-ins.
std::string_view WithStandIns(std::string_view text, std::string* copy) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const CodePoint point = DecodeUtf8(text.data() + at);
    const uint32_t code = StandInOf(point.code);
    if (code != point.code) {
      if (copy->empty()) copy->assign(text);
      bytes.clear();
      AppendUtf8(code, &bytes);
      copy->replace(at, bytes.size(), bytes);
    }
    at += point.bytes;
  }
  return copy->empty() ? text : *copy;
}

}  // namespace

struct RegexSplitter::Code {
  Owned<pcre2_code> compiled;
};

RegexSplitter::RegexSplitter(std::unique_ptr<Code> code) : code_(std::move(code)) {}
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;
RegexSplitter::~RegexSplitter() = default;

StatusOr<RegexSplitter> RegexSplitter::Create(std::string_view pattern) {
  RETURN_IF_ERROR(RefuseOtherMeanings(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->compiled.reset(pcre2_compile(Units(pattern), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                                     &offset, nullptr));
  if (code->compiled == nullptr) {
    return base::InvalidArgument("the pattern is not one of PCRE2: {} at offset {}",
                                 ErrorText(error), offset);
  }
  RETURN_IF_ERROR(RefuseEmptyMatches(code->compiled.get()));
  (void)pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);  // else it is interpreted
  return RegexSplitter(std::move(code));
}

Status RegexSplitter::Split(std::string_view text, const Piece& piece) const {
  const Owned<pcre2_match_data> match(
      pcre2_match_data_create_from_pattern(code_->compiled.get(), nullptr));
  const Owned<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  const Owned<pcre2_jit_stack> stack(
      pcre2_jit_stack_create(size_t{32} << 10, kStackBytes, nullptr));
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  std::string copy;
  const std::string_view seen = WithStandIns(text, &copy);
  size_t done = 0;
  size_t from = 0;
  while (from < text.size()) {
    const int found = pcre2_match(code_->compiled.get(), Units(seen), seen.size(), from,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return base::InvalidArgument("the pattern cannot be matched at offset {} of the text: {}",
                                   from, ErrorText(found));
    }
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match.get());
    // \K in a lookbehind could move the start backwards.
    if (ends[0] < done || ends[1] <= ends[0]) {
      return base::InvalidArgument("the pattern matches text twice at offset {}", from);
    }
    if (ends[0] > done) RETURN_IF_ERROR(piece(text.substr(done, ends[0] - done)));
    RETURN_IF_ERROR(piece(text.substr(ends[0], ends[1] - ends[0])));
    done = from = ends[1];
  }
  return done < text.size() ? piece(text.substr(done)) : OkStatus();
}

}  // namespace mt::data
