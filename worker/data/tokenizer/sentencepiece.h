// SentencePiece models, by Debian's library in a module that is loaded at the first use
// (sentencepiece_module/interface.h). Text is encoded and decoded as that package does: its
// normalization loses what it loses.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {

// The largest text that is encoded, and the most that is encoded at one time by all threads of a
// tokenizer: the library takes 90 to 240 times the bytes of most texts.
inline constexpr size_t kMaxSentencePieceBytes = size_t{4} << 20;

// From the bytes of a model's file. kFailedPrecondition where the module or the library is not
// there (the message names the package), kInvalidArgument for bytes that are no model.
StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePiece(std::string_view model, std::string digest);

}  // namespace mt::data
