// Most vocabularies' tokens begin with the same byte, which memchr finds faster than any automaton.
#include "worker/data/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

namespace mt::data {

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

}  // namespace mt::data
