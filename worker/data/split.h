// The train/validation/test split of one data set, by Megatron's rule (megatron/core/datasets:
// parse_and_normalize_split).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::data {

enum class SplitName { kTrain = 0, kValid = 1, kTest = 2 };
// "train", "valid", "test".
std::string_view Name(SplitName split);

// Sequences [begin, end).
struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const SequenceRange&, const SequenceRange&) = default;
};

// "969,30,1" -> shares that sum to 1. Up to three non-negative numbers, missing ones are 0.
StatusOr<std::array<double, 3>> ParseSplit(const std::string& text);

// Ranges of train, valid, test: bounds are round-half-to-even(cumulative share x num_sequences).
std::array<SequenceRange, 3> SplitRanges(const std::array<double, 3>& shares,
                                         int64_t num_sequences);

}  // namespace mt::data
