// Tokens that stand for a text of their own, such as <|endoftext|>: they are found in the text
// before it is cut into pieces, the leftmost first and of those the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mt::data {

struct AddedToken {
  std::string text{};
  int32_t id = 0;
};

// Immutable and thread-safe.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    size_t offset;
    const AddedToken* token;  // nullptr: none, and offset is the text's size
  };
  // The first token in `text` at `from` or later.
  Match Find(std::string_view text, size_t from) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;  // by first byte, the longest first
  std::array<std::pair<size_t, size_t>, 256> by_byte_{};
  int only_first_ = -1;  // the byte that all begin with
};

}  // namespace mt::data
