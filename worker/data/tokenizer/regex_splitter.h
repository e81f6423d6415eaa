// Cuts text by a regular expression of PCRE2, for patterns without a splitter of our own. Its
// categories and white space are those of unicode.h, whatever Unicode from 14 to 16 PCRE2 has: it
// is shown stand-ins for what its tables lack. A range of code points in a pattern that begins or
// ends between a code point newer than 14 and its stand-in (kStandIns) takes both alike.
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

  // kInvalidArgument where PCRE2 does not take the pattern, with its reason, or would take it for
  // another than the tokenizers library does: word and blank escapes, anchors of lines, classes
  // within classes, some numbers of times and options, and what may match an empty text.
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
