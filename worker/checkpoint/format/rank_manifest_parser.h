// Reads the text of a rank's manifest event by event, without a tree of it in memory: a checkpoint
// of a thousand ranks has millions of slices. Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/checkpoint/format/tensor_entry.h"

namespace mt::checkpoint {

inline constexpr std::string_view kRankFormat = "megatrain-checkpoint-rank";

// The tensors of the text, any bytes, with slices in `file`. Fields that it does not know it passes
// over. kDataLoss: it is no such text, or a field is missing or of another type. What shapes and
// digests are is not checked.
StatusOr<TensorTable> ParseRankText(std::string_view text, const std::string& file);

}  // namespace mt::checkpoint
