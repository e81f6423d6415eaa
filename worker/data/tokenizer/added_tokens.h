// Tokens that stand for a text of their own, such as <|endoftext|>: they are found in the text
// before it is cut into pieces, the leftmost first and of those the longest, by the rules of the
// tokenizers library.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

struct AddedToken {
  std::string text{};
  int32_t id = 0;
  bool single_word = false;  // nothing where a character of a word stands beside it
  bool lstrip = false;       // the white space before it is part of it
  bool rstrip = false;       // and that behind it
};

// Immutable and thread-safe.
class AddedTokens {
 public:
  static constexpr int32_t kText = -1;

  AddedTokens() = default;
  // No two of one text.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Calls `part` (Status(std::string_view, int32_t id)) with the parts of `text` in order: an added
  // token with its id, what is between them with kText. What `rstrip` takes is looked through
  // again: a token found there begins where it stands, and the text goes on behind it.
  template <class Part>
  Status Split(std::string_view text, Part&& part) const {
    size_t done = 0;
    Space space;
    for (Match match = Find(text, 0); match.token != nullptr;) {
      const size_t end = match.offset + match.token->text.size();
      Match next = Find(text, end);
      if (!match.token->single_word || StandsAlone(text, match)) {
        const size_t begin = Begin(text, match, done);
        if (done < begin) RETURN_IF_ERROR(part(text.substr(done, begin - done), kText));
        done = match.token->rstrip ? SpaceEnd(text, end, &space) : end;
        // White space that is a token and was taken by the one before is no other.
        if (begin < done) RETURN_IF_ERROR(part(text.substr(begin, done - begin), match.token->id));
      }
      match = next;
    }
    return done < text.size() ? part(text.substr(done), kText) : OkStatus();
  }

 private:
  struct Match {
    size_t offset;
    const AddedToken* token;  // nullptr: none, and offset is the text's size
  };
  // The first token in `text` at `from` or later.
  Match Find(std::string_view text, size_t from) const;
  static bool StandsAlone(std::string_view text, const Match& match);
  // Where the match begins with the white space that it takes, which is none before `done`.
  static size_t Begin(std::string_view text, const Match& match, size_t done);
  // The white space that was met last, so that a run of it is looked over once.
  struct Space {
    size_t begin = 0, end = 0;
  };
  static size_t SpaceEnd(std::string_view text, size_t from, Space* last);

  std::vector<AddedToken> tokens_;  // by first byte, the longest first
  std::array<std::pair<size_t, size_t>, 256> by_byte_{};
  int only_first_ = -1;  // the byte that all begin with
};

}  // namespace mt::data
