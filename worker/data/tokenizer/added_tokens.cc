// Most vocabularies' tokens begin with the same byte, which memchr finds faster than any automaton.
#include "worker/data/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "worker/data/tokenizer/unicode.h"
#include "worker/data/tokenizer/word_characters.h"

namespace mt::data {
namespace {

// The character that begins at `at`; none at the end and where no valid one does.
std::optional<CodePoint> After(std::string_view text, size_t at) {
  const std::string_view left = text.substr(at, 4);
  for (size_t bytes = 1; bytes <= left.size(); ++bytes) {
    if (ValidUtf8Prefix(left.substr(0, bytes)) == bytes) return DecodeUtf8(left.data());
  }
  return std::nullopt;
}

// The character that ends at `at`.
std::optional<CodePoint> Before(std::string_view text, size_t at) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(at, 4); ++bytes) {
    const std::string_view last = text.substr(at - bytes, bytes);
    if (ValidUtf8Prefix(last) == bytes) return DecodeUtf8(last.data());
  }
  return std::nullopt;
}

bool IsSpace(const CodePoint& point) { return CharClasses()[point.code] == CharClass::kSpace; }

bool IsWord(const std::optional<CodePoint>& point) { return point && IsWordCharacter(point->code); }

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  const auto first = [](const AddedToken& token) {
    return static_cast<unsigned char>(token.text.front());
  };
  std::ranges::sort(tokens_, [&](const AddedToken& a, const AddedToken& b) {
    if (first(a) != first(b)) return first(a) < first(b);
    return a.text.size() > b.text.size();
  });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    auto& range = by_byte_[first(tokens_[i])];
    if (range.second == 0) range.first = i;
    range.second = i + 1;
  }
  if (!tokens_.empty() && first(tokens_.front()) == first(tokens_.back()))
    only_first_ = first(tokens_.front());
}

AddedTokens::Match AddedTokens::Find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return {text.size(), nullptr};
  for (size_t at = from; at < text.size(); ++at) {
    if (only_first_ >= 0) {
      const void* const found = std::memchr(text.data() + at, only_first_, text.size() - at);
      if (found == nullptr) break;
      at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    }
    const auto [begin, end] = by_byte_[static_cast<unsigned char>(text[at])];
    for (size_t i = begin; i < end; ++i) {
      if (text.substr(at).starts_with(tokens_[i].text)) return {at, &tokens_[i]};
    }
  }
  return {text.size(), nullptr};
}

bool AddedTokens::StandsAlone(std::string_view text, const Match& match) {
  return !IsWord(Before(text, match.offset)) &&
         !IsWord(After(text, match.offset + match.token->text.size()));
}

size_t AddedTokens::Begin(std::string_view text, const Match& match, size_t done) {
  if (!match.token->lstrip) return match.offset;
  size_t begin = match.offset;
  while (begin > done) {
    const auto point = Before(text, begin);
    if (!point || !IsSpace(*point)) break;
    begin -= point->bytes;
  }
  return std::max(begin, done);
}

size_t AddedTokens::SpaceEnd(std::string_view text, size_t from, Space* last) {
  if (last->begin <= from && from < last->end) return last->end;
  *last = {.begin = from, .end = from};
  while (true) {
    const auto point = After(text, last->end);
    if (!point || !IsSpace(*point)) break;
    last->end += point->bytes;
  }
  return last->end;
}

}  // namespace mt::data
