// The tokenizers without a file: bytes, and ids that stand in the text as numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {

// One token per byte; the EOD token is 256.
std::unique_ptr<Tokenizer> MakeByteTokenizer();
// Its Tokenizer::token_bytes.
std::vector<int32_t> BytesOfByteTokens();
// Decimal ids separated by white space. EOD is the last id of the vocabulary, as with Megatron's
// NullTokenizer, whose --vocab-size is one less than ours. vocab_size is 2 ... 2^31 - 1.
std::unique_ptr<Tokenizer> MakeNullTokenizer(int64_t vocab_size);

}  // namespace mt::data
