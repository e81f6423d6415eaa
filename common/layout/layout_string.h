// Megatron-LM's --pipeline-model-parallel-layout: "E|(t|)*3,m|m||L". E is the embedding, t a
// transformer layer, m multi-token prediction, L the loss, | separates positions (virtual stages),
// (...)*n or x*n repeats; commas and blanks are ignored. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::layout {

// Number of layers at each position. InvalidArgument names the place in the text where it is not a
// layout; it also refuses an embedding that is not first, a loss that is not last, and m, which is
// not supported.
StatusOr<std::vector<int64_t>> CountsOfLayoutString(std::string_view text);

}  // namespace mt::layout
