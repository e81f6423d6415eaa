// Cuts text by a regular expression of PCRE2, for patterns without a splitter of our own.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "common/base/status.h"

namespace mt::data {

// Immutable and thread-safe.
class RegexSplitter {
 public:
  // Called with each piece in order; an error ends the split.
  using Piece = std::function<Status(std::string_view)>;

  // kInvalidArgument where PCRE2 does not take the pattern, with its reason.
  static StatusOr<RegexSplitter> Create(std::string_view pattern);
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;
  ~RegexSplitter();

  // The matches and what lies between them, so that nothing of `text`, which is valid UTF-8, is
  // lost. kInvalidArgument where matching runs out of PCRE2's limits.
  Status Split(std::string_view text, const Piece& piece) const;

 private:
  struct Code;
  explicit RegexSplitter(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace mt::data
