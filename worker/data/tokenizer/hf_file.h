// Reads and writes tokenizer.json of Hugging Face's tokenizers library, for byte-level BPE: what it
// says of other kinds is refused with the component's name. Padding, truncation and the post
// processor, which adds tokens around a text, have no part in data sets and are passed over. Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"

namespace mt::data {

// kInvalidArgument for damaged JSON and what the head of this file says.
StatusOr<BpeParts> ParseHfFile(std::string_view text);

// The text of a tokenizer.json that ParseHfFile reads as `parts`, and the library alike. `parts`
// have tokens without holes, and one pattern.
std::string HfFileText(const BpeParts& parts);

}  // namespace mt::data
