// Interface between text and token ids. Implementations are immutable and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

// Where a long text may be cut so that the ids of its parts are those of the whole.
enum class CutRule {
  kNowhere,    // it is encoded as a whole
  kAnywhere,   // a token is a byte
  kSpace,      // before white space: tokens are words
  kAfterWord,  // between a letter or digit of ASCII and a space, and behind a line end that stands
               // alone between what is no white space: no piece that BPE merges within spans them
};
struct Cuts {
  CutRule rule = CutRule::kNowhere;
  std::vector<std::string> whole{};  // texts that no cut may divide
};

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
  virtual Cuts cuts() const { return {}; }
  // The bytes of text that each id stands for, [vocab_size]: what a loss per token becomes one per
  // byte by. 0: the end of a document, which is no text, and ids without a text of their own.
  // Empty: it does not know (ids).
  virtual std::vector<int32_t> token_bytes() const { return {}; }
  // Appends the ids of `text` to `ids`. kInvalidArgument for text that has none: words that are no
  // ids (null), a piece above kMaxPieceBytes; by ErrorAt.
  virtual Status Encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  // The text of `ids`; EOD of bytes and ids becomes "<eod>", elsewhere the token's own text.
  // kInvalidArgument for ids outside [0, vocab_size) or without a token.
  virtual StatusOr<std::string> Decode(std::span<const int32_t> ids) const = 0;
};

// kInvalidArgument of one place in a text: "at offset 7: what".
Status ErrorAt(int64_t offset, std::string_view what);
// The offset of such an error; nullopt of others.
std::optional<int64_t> OffsetOf(const Status& error);
// The same error as one of a text that begins `bytes` earlier; others as they are.
Status Moved(const Status& error, int64_t bytes);

}  // namespace mt::data
