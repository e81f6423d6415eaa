// Token ids to text as it comes: what later tokens may still change is held back, which is a
// character of which only some bytes are there, and what may become a stop string. A stop string
// ends the text, which does not have it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer.h"

namespace mt::decode {

// The bytes at the end of `text` that begin a UTF-8 character and do not finish it: 0 to 3.
size_t UnfinishedBytes(std::string_view text);

// Used by one thread.
class TextStream {
 public:
  // The tokenizer must outlive the stream. `prompt` is only read for what follows it: white space
  // at a border may depend on both sides. No stop string is empty.
  TextStream(const data::Tokenizer* tokenizer, std::vector<int32_t> prompt,
             std::vector<std::string> stops);

  // Takes the next token and returns the text that is final now and was not before. Errors: the
  // tokenizer's.
  StatusOr<std::string> Add(int32_t token);
  // The rest, when nothing comes after it. Call once.
  std::string Finish();
  // True when a stop string was met; Add must not be called again.
  bool stopped() const { return stopped_; }
  // The tokens so far, and the text that was returned so far.
  std::span<const int32_t> ids() const { return std::span(ids_).subspan(prompt_size_); }
  const std::string& text() const { return text_; }

 private:
  // Moves [text_.size(), end) of `all` to text_.
  std::string Take(std::string_view all, size_t end);
  // How much of the text behind `end` may be the beginning of a stop string.
  size_t HeldForStops(std::string_view all) const;

  const data::Tokenizer* const tokenizer_;
  const std::vector<std::string> stops_;
  std::vector<int32_t> ids_;  // prompt and continuation
  const size_t prompt_size_;
  std::string before_;  // the prompt's text
  std::string all_;     // the continuation's, with what is held back
  std::string text_;    // of it, what was returned
  bool stopped_ = false;
};

}  // namespace mt::decode
