// A byte-level tokenizer: added tokens, a splitter, and byte-pair encoding of the pieces. Decoding
// gives back the bytes that were encoded, whatever they are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/bpe_model.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {

// A token that has a text of its own.
struct NamedToken {
  std::string text{};
  int32_t id = 0;
  bool in_text = true;  // found in text that is encoded; else only decoded, and EOD
};

// The parts of a byte-level tokenizer, as files give them and the trainer makes them.
struct BpeParts {
  std::string name{};    // "gpt2_bpe", "hf"
  std::string digest{};  // of the files
  BpeTables tables{};
  std::vector<std::string> patterns{};
  std::vector<NamedToken> named{};
  std::string eod{};  // text of the end-of-document token; empty: the first usual one there is
};

// kInvalidArgument: see BpeModel::Create and Splitter::Create; an `eod` that is no token.
StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(BpeParts parts);

// The id of the end-of-document token: of `eod`, or of the first of the texts that published
// vocabularies call it by. kNoEod where there is none; kInvalidArgument where `eod` is no token.
StatusOr<int32_t> FindEod(const BpeParts& parts);

}  // namespace mt::data
