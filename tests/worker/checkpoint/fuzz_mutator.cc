// Tokens are found without a parser: a text need not be JSON any more after its first change.
#include "tests/worker/checkpoint/fuzz_mutator.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace mt::checkpoint {
namespace {

constexpr size_t kLargestText = size_t{1} << 20;

bool IsPartOfNumber(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '+' || c == '.' ||
         c == 'e' || c == 'E';
}

// Strings, numbers and words, as begin and size.
std::vector<std::pair<size_t, size_t>> TokensOf(std::string_view text) {
  std::vector<std::pair<size_t, size_t>> tokens;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else if (IsPartOfNumber(text[i]) || std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      while (end < text.size() && (IsPartOfNumber(text[end]) ||
                                   std::isalpha(static_cast<unsigned char>(text[end])) != 0))
        ++end;
    } else {
      ++i;
      continue;
    }
    tokens.emplace_back(i, end - i);
    i = end;
  }
  return tokens;
}

}  // namespace

std::pair<size_t, size_t> Mutator::Part(std::string_view text, size_t longest) {
  if (text.empty()) return {0, 0};
  const size_t begin = Below(text.size());
  return {begin, 1 + Below(std::min(longest, text.size() - begin))};
}

void Mutator::ChangeBytes(std::string* text) {
  static constexpr std::string_view kBytes("\"{}[]:,\\-+.eE0129ntfu/ \n\0\x7f\x80\xc3\xff", 29);
  for (size_t n = 1 + Below(4); n > 0 && !text->empty(); --n) {
    char& byte = (*text)[Below(text->size())];
    byte = Below(2) == 0 ? static_cast<char>(byte ^ (1 << Below(8))) : kBytes[Below(kBytes.size())];
  }
}

void Mutator::MovePieces(std::string* text, std::string_view other) {
  const auto [begin, size] = Part(*text, 64);
  switch (Below(4)) {
    case 0:
      text->erase(begin, size);
      return;
    case 1:
      text->resize(begin);
      return;
    case 2:
      text->insert(begin, std::string(*text, begin, size));
      return;
    default: {
      const auto [from, taken] = Part(other, 256);
      text->insert(begin, other.substr(from, taken));
    }
  }
}

std::string Mutator::HostileValue() {
  static constexpr std::string_view kValues[] = {"0",
                                                 "-1",
                                                 "1",
                                                 "2",
                                                 "3",
                                                 "4096",
                                                 "2147483648",
                                                 "4294967297",
                                                 "1125899906842624",
                                                 "4611686018427387904",
                                                 "9223372036854775807",
                                                 "-9223372036854775808",
                                                 "9223372036854775808",
                                                 "18446744073709551615",
                                                 "18446744073709551616",
                                                 "0.5",
                                                 "-0.0",
                                                 "1e300",
                                                 "-1e300",
                                                 "1e-320",
                                                 "1e999",
                                                 "null",
                                                 "true",
                                                 "false",
                                                 "{}",
                                                 "[]",
                                                 "[[]]",
                                                 "[0]",
                                                 "[0, 0]",
                                                 "[-1, 9223372036854775807]",
                                                 "[4294967296, 4294967296, 4294967296]",
                                                 "[0, 9223372036854775807]",
                                                 "\"\"",
                                                 "\"nan\"",
                                                 "\"..\"",
                                                 "\"../../etc/passwd\"",
                                                 "\"a\\u0000b\"",
                                                 "\"\\ud800\"",
                                                 "\"F32\"",
                                                 "\"BF16\"",
                                                 "{\"\": 0}"};
  const size_t kind = Below(std::size(kValues) + 2);
  if (kind < std::size(kValues)) return std::string(kValues[kind]);
  const size_t depth = size_t{1} << Below(18);
  const bool arrays = kind == std::size(kValues);
  std::string nested;
  for (size_t i = 0; i < depth; ++i) nested += arrays ? "[" : "{\"a\":";
  nested += "0";
  nested.append(depth, arrays ? ']' : '}');
  return nested;
}

void Mutator::ReplaceToken(std::string* text) {
  const auto tokens = TokensOf(*text);
  if (tokens.empty()) return;
  const auto [begin, size] = tokens[Below(tokens.size())];
  const auto [from, taken] = tokens[Below(tokens.size())];
  text->replace(begin, size, Below(3) == 0 ? text->substr(from, taken) : HostileValue());
}

std::string Mutator::Mutate(std::string_view text, std::string_view other) {
  std::string out(text);
  for (size_t n = 1 + Below(4); n > 0; --n) {
    switch (Below(4)) {
      case 0:
        ChangeBytes(&out);
        break;
      case 1:
        MovePieces(&out, other);
        break;
      default:
        ReplaceToken(&out);
    }
  }
  out.resize(std::min(out.size(), kLargestText));
  return out;
}

}  // namespace mt::checkpoint
