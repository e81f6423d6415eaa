// A tokenizer of BPE over characters: added tokens, normalizer, pre-tokenizer, model and decoder as
// the tokenizers library has them. Text that its rules lose, such as bytes that are no UTF-8, does
// not come back from decoding.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/text_bpe.h"
#include "worker/data/tokenizer/text_rules.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {

struct BpeParts;

// What such a tokenizer has beyond the parts of a byte-level one.
struct TextRules {
  std::vector<NormalizerStep> normalizer{};
  std::optional<Metaspace> metaspace{};
  std::vector<DecoderStep> decoder{};
  UnknownRules unknown{};
};

// `parts` have TextRules, and no patterns. kInvalidArgument: see TextBpe::Create; two added tokens
// of one text; an `eod` that is no token.
StatusOr<std::unique_ptr<Tokenizer>> MakeTextTokenizer(BpeParts parts);

}  // namespace mt::data
