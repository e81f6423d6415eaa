// How often each piece of some texts occurs: what the trainer works on. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/splitter.h"

namespace mt::data {

struct PieceCount {
  std::string_view piece;  // within one of the texts
  int64_t count;
};

// The pieces of all texts, the most frequent first, equals by their bytes: whatever the number of
// threads, since texts are divided at fixed places. A piece of more than 256 bytes counts as
// several of these.
StatusOr<std::vector<PieceCount>> CountPieces(const Splitter& splitter,
                                              std::span<const std::string_view> texts, int threads);

}  // namespace mt::data
