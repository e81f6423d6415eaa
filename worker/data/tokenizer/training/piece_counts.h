// How often each piece of some texts occurs: what the trainer works on. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

struct TrainingText {
  std::string name{};  // for messages
  std::string_view text{};
};

struct PieceCount {
  std::string_view piece;  // within one of the texts
  int64_t count;
};

// The pieces by the pattern of all texts, the most frequent first, equals by their bytes: those of
// each text as a whole, whatever the number of threads. Several threads divide one text only where
// the pattern has a splitter of our own. kInvalidArgument for a pattern that PCRE2 refuses, and,
// with text and offset, for a piece above kMaxPieceBytes, which no tokenizer would encode.
StatusOr<std::vector<PieceCount>> CountPieces(const std::string& pattern,
                                              std::span<const TrainingText> texts, int threads);

}  // namespace mt::data
