// Megatron-LM's --pipeline-model-parallel-layout: "E|(t|)*3,m|m||L". E embedding, t transformer
// layer, m multi-token prediction, L loss, | border between positions, (...)*n or x*n repetition,
// commas and blanks ignored. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::layout {

// Layers of each position. InvalidArgument, with the place in the text, for what is no layout; for
// an embedding that is not first or a loss that is not last; and for m, which is not supported.
StatusOr<std::vector<int64_t>> CountsOfLayoutString(std::string_view text);

}  // namespace mt::layout
