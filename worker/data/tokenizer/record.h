// What tells which tokenizer made a data set: a small file beside its .idx (worker/data/FORMAT.md),
// by which a job refuses the data of another one, and from which a job without a tokenizer has its
// vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::data {

class Tokenizer;

struct TokenizerRecord {
  std::string type{};    // byte, null, gpt2_bpe, hf, sentencepiece
  std::string digest{};  // of its files, 32 hex digits; "" for byte and null
  int64_t vocab_size = 0;
  int32_t eod = -1;  // kNoEod: it has no end-of-document token
  // Tokenizer::token_bytes; empty: not known (ids, or a record of an earlier version). It follows
  // from the rest, so equality leaves it out.
  std::vector<int32_t> token_bytes{};
  friend bool operator==(const TokenizerRecord& a, const TokenizerRecord& b) {
    return a.type == b.type && a.digest == b.digest && a.vocab_size == b.vocab_size &&
           a.eod == b.eod;
  }
};

TokenizerRecord RecordOfTokenizer(const Tokenizer& tokenizer);
// Documents end with this token of it, which is no text then, as `mtctl data prepare --eod`
// chooses; kNoEod: with none.
void SetEod(int32_t eod, TokenizerRecord* record);
// "hf (50257 tokens, digest 0123...)", for messages.
std::string RecordText(const TokenizerRecord& record);

std::string ToJson(const TokenizerRecord& record);
// kDataLoss for a text that is no record.
StatusOr<TokenizerRecord> ParseTokenizerRecord(std::string_view text);

// <prefix>.tokenizer.json.
std::string RecordPath(std::string_view prefix);
Status WriteTokenizerRecord(const std::string& prefix, const TokenizerRecord& record);
// nullopt where the data set has none: it was made elsewhere, or by an older version. Else the
// errors of the file and of ParseTokenizerRecord, with its path.
StatusOr<std::optional<TokenizerRecord>> ReadTokenizerRecord(const std::string& prefix,
                                                             const base::FileOpener& open = {});

// OK where data that `data` tells of can be trained on by a job with tokenizer `job`: the same type
// and digest. A job of ids (null) takes any. kFailedPrecondition names both and what to do.
Status CheckSameTokenizer(const TokenizerRecord& data, const TokenizerRecord& job,
                          std::string_view prefix);

}  // namespace mt::data
