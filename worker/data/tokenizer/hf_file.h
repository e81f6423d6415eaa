// Reads and writes tokenizer.json of Hugging Face's tokenizers library: byte-level BPE, and BPE
// over characters as of Llama 2 (read only). What is of other kinds is refused with the component's
// name. Padding, truncation and the post
// processor, which adds tokens around a text, have no part in data sets and are passed over. Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"

namespace mt::data {

// kInvalidArgument for damaged JSON and what the head of this file says.
StatusOr<BpeParts> ParseHfFile(std::string_view text);

// The text of a tokenizer.json that ParseHfFile reads as `parts`, and the library alike, byte for
// byte as that saves it. `parts` have one pattern and no NFC; an id without a token is that of a
// named one.
std::string HfFileText(const BpeParts& parts);

}  // namespace mt::data
