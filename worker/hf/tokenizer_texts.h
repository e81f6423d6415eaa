// The files by which transformers has the tokenizer of a model: tokenizer.json and
// tokenizer_config.json. Blocking; reads the tokenizer's own files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/data/tokenizer.h"

namespace mt::hf {

struct TokenizerTexts {
  std::map<std::string, std::string> texts;  // by name; none for ids
  std::optional<int64_t> eos;                // the end-of-document token
  int64_t vocab_size = 0;
  std::string digest;  // data::Tokenizer::digest
};

// Of bytes and of GPT-2's two files a tokenizer.json is made; hf's is taken as it is.
// tokenizer_config names the class that keeps it and the end-of-document token. Ids (null) have no
// files, and their last id as that token. Errors: data::MakeTokenizer's; kFailedPrecondition:
// sentencepiece, of which no tokenizer.json is made.
StatusOr<TokenizerTexts> TokenizerTextsOf(const data::TokenizerConfig& config);

}  // namespace mt::hf
