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
// The split's name in messages and records: "train", "valid" or "test".
std::string_view Name(SplitName split);

// A half-open range of sequences, [begin, end).
struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const SequenceRange&, const SequenceRange&) = default;
};

// Parses "969,30,1" to shares that sum to 1. Up to three non-negative numbers; missing ones are 0.
// kInvalidArgument for anything else.
StatusOr<std::array<double, 3>> ParseSplit(const std::string& text);

// The sequences of train, valid and test. The bounds are cumulative share x num_sequences, rounded
// half to even.
std::array<SequenceRange, 3> SplitRanges(const std::array<double, 3>& shares,
                                         int64_t num_sequences);

}  // namespace mt::data
