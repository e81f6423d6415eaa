// Which tokenizer made the tokens that a run trains on, as facts of its checkpoints (FORMAT.md).
// Its files are kept beside the checkpoints, in the folder "tokenizer-<digest>" of their directory.
#pragma once

#include <optional>
#include <string>

#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

struct SavedTokenizer {
  std::string type;    // gpt2_bpe, hf, sentencepiece: types without files are told by the job
  std::string digest;  // of its files, 32 hex digits
};

inline constexpr char kTokenizerTypeFact[] = "tokenizer.type";
inline constexpr char kTokenizerDigestFact[] = "tokenizer.digest";

// nullopt: it has no files, or the checkpoint does not tell it, as those of earlier versions.
std::optional<SavedTokenizer> TokenizerOf(const Manifest& manifest);
void PutTokenizer(const SavedTokenizer& tokenizer, Manifest* manifest);

// The name of the folder.
std::string FolderName(const SavedTokenizer& tokenizer);

}  // namespace mt::checkpoint
