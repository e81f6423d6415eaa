// Reads vocab.json and merges.txt, the files of GPT-2's tokenizer and of others of its kind. Added
// tokens are none of theirs: <|endoftext|> in a text is encoded as any text, as Megatron does.
// Pure.
#pragma once

#include <string_view>

#include "common/base/status.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"

namespace mt::data {

// Errors (kInvalidArgument) say which of the two texts: "vocab.json: ...".
StatusOr<BpeParts> ParseGpt2Files(std::string_view vocab, std::string_view merges);

}  // namespace mt::data
