// Which tokenizer a job or command means, and how it is made. The interface is
// worker/data/tokenizer/tokenizer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/data/tokenizer/record.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {

// As in the job's data.tokenizer; paths are absolute, or relative to the working directory.
struct TokenizerConfig {
  std::string type{};      // byte, null (or ids), gpt2_bpe, hf, sentencepiece
  int64_t vocab_size = 0;  // "null" only
  std::string file{};      // hf: tokenizer.json; sentencepiece: the model
  std::string vocab{};     // gpt2_bpe: vocab.json
  std::string merges{};    // gpt2_bpe: merges.txt
  std::string eod{};       // text of the end-of-document token of gpt2_bpe and hf; empty: the usual
  base::FileOpener open{};  // of these files
};

// Makes the tokenizer; reads its files. kInvalidArgument for an unknown type (the message names the
// known ones), files that the type does not take or lacks, files that are damaged or of a kind that
// is not supported, and a vocabulary that "null" cannot have.
StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const TokenizerConfig& config);

// What MakeTokenizer's tokenizer would leave as its record. Reads the files, for the digest alone
// where `known` (of data, may be null) has the same digest and the bytes of its tokens: its sizes
// hold then, and nothing is parsed. With the same digest it has `known`'s end-of-document token,
// unless the config names one. Errors as MakeTokenizer.
StatusOr<TokenizerRecord> RecordOf(const TokenizerConfig& config, const TokenizerRecord* known);

// The files of a tokenizer lie in a folder of its own, named by their digest, beside what was made
// with them: data sets, and the checkpoints of runs. Once they are there they never change.
std::string KeptTokenizerName(std::string_view digest);  // "tokenizer-<digest>"

// Copies the files of `config` to <directory>/tokenizer-<digest>, unless they are there: hf's as
// tokenizer.json, gpt2_bpe's as vocab.json and merges.txt, sentencepiece's as tokenizer.model.
// Types without files have nothing to keep. Each file is written atomically, so several that keep
// the same tokenizer at once do no harm. kFailedPrecondition where the files have another digest by
// now; else errors of the files.
Status KeepTokenizer(const TokenizerConfig& config, std::string_view digest,
                     const std::string& directory);

// Type and files of a tokenizer that is kept in `directory`; nullopt where it is not. Nothing is
// read: who makes a tokenizer of them compares its digest.
std::optional<TokenizerConfig> FindKeptTokenizer(std::string_view type, std::string_view digest,
                                                 const std::string& directory);

// "null" for its other name "ids"; else the type as it is.
std::string_view TypeOfName(std::string_view type);

}  // namespace mt::data
