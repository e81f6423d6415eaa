// How a byte-level tokenizer cuts text before byte-pair encoding: one pattern after the other, each
// within the pieces of the one before.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/regex_splitter.h"

namespace mt::data {

// Immutable and thread-safe.
class Splitter {
 public:
  // Without patterns text is one piece. kInvalidArgument for a pattern that PCRE2 refuses.
  static StatusOr<Splitter> Create(const std::vector<std::string>& patterns);
  // PCRE2 for every pattern, for tests.
  static StatusOr<Splitter> CreateWithoutFast(const std::vector<std::string>& patterns);

  // Calls `piece` (Status(std::string_view)) with each piece of valid UTF-8 in order; an error ends
  // the split.
  template <class Piece>
  Status Split(std::string_view text, Piece&& piece) const {
    if (stages_.size() != 1 || stages_[0].fast == nullptr) return SplitBy(0, text, piece);
    const char* const end = text.data() + text.size();
    for (const char* p = text.data(); p < end;) {
      const char* const next = stages_[0].fast(p, end);
      RETURN_IF_ERROR(piece(std::string_view(p, static_cast<size_t>(next - p))));
      p = next;
    }
    return OkStatus();
  }

 private:
  struct Stage {
    FastSplitter fast = nullptr;
    std::vector<RegexSplitter> regex{};  // one, unless fast
  };
  Status SplitBy(size_t stage, std::string_view text, const RegexSplitter::Piece& piece) const;
  std::vector<Stage> stages_;
};

}  // namespace mt::data
