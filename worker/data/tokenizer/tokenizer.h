// Interface between text and token ids. Implementations are immutable and thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

// eod() of a tokenizer that names no end-of-document token.
inline constexpr int32_t kNoEod = -1;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  virtual int64_t vocab_size() const = 0;  // unpadded; every id is below it
  virtual int32_t eod() const = 0;         // id of the end-of-document token, or kNoEod
  // Digest of the files that it was made from, 32 hex digits; "" for bytes and ids, which have
  // none.
  virtual std::string digest() const { return ""; }
  // Appends the ids of `text` to `ids`. kInvalidArgument for text that has none: words that are no
  // ids (null), a piece above kMaxPieceBytes (by its offset).
  virtual Status Encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  // The text of `ids`; EOD of bytes and ids becomes "<eod>", elsewhere the token's own text.
  // kInvalidArgument for ids outside [0, vocab_size) or without a token.
  virtual StatusOr<std::string> Decode(std::span<const int32_t> ids) const = 0;
};

}  // namespace mt::data
