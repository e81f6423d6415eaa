// The train/validation/test split of one data set: of its sequences by Megatron's rule
// (megatron/core/datasets: parse_and_normalize_split), or of its tokens by the same one, which
// divides a data set of few sequences, too.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/indexed_dataset.h"

namespace mt::data {

enum class SplitName { kTrain = 0, kValid = 1, kTest = 2 };
// The split's name in messages and records: "train", "valid" or "test".
std::string_view Name(SplitName split);

// What the shares of a split are of: sequences (what the .idx calls so: documents, as a rule),
// which stay whole, or tokens.
enum class SplitBy { kDocuments = 0, kTokens = 1 };
// The split as records have it: "969,30,1", "969,30,1 by tokens".
std::string SplitText(const std::string& split, SplitBy by);

// The sequences [begin, end) of a data set, without the first `skip_front` tokens of the first one
// and the last `skip_back` tokens of the last one, which may be the same.
struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t skip_front = 0;
  int64_t skip_back = 0;
  friend bool operator==(const SequenceRange&, const SequenceRange&) = default;
};

// Tokens [begin, end) of a sequence.
struct TokenSpan {
  int64_t begin = 0;
  int64_t end = 0;
};
// What a range has of one of its sequences. `length` is the sequence's: of a file that was written
// over it may be any number, and the span is within it or empty all the same.
inline TokenSpan SpanOf(const SequenceRange& range, int64_t sequence, int64_t length) {
  TokenSpan span{.begin = 0, .end = length};
  if (range.skip_front > 0 && sequence == range.begin)
    span.begin = std::clamp<int64_t>(length, 0, range.skip_front);
  if (range.skip_back > 0 && sequence == range.end - 1)
    span.end = std::max(span.begin, length - range.skip_back);
  return span;
}
// Tokens of a range; looks at few lengths (IndexedDataset::CountTokens).
int64_t CountTokens(const IndexedDataset& data, const SequenceRange& range);

// Parses "969,30,1" to shares that sum to 1. Up to three non-negative numbers; missing ones are 0.
// kInvalidArgument for anything else.
StatusOr<std::array<double, 3>> ParseSplit(const std::string& text);

// The sequences of train, valid and test. The bounds are cumulative share x num_sequences, rounded
// half to even.
std::array<SequenceRange, 3> SplitRanges(const std::array<double, 3>& shares,
                                         int64_t num_sequences);

// What train, valid and test have of a data set: SplitRanges of its sequences or, by tokens, the
// sequences from that of a part's first token to that of its last one. A part may be empty, begin
// == end. By tokens it takes one pass over the lengths. Errors of ParseSplit; kDataLoss where the
// .idx was written over.
StatusOr<std::array<SequenceRange, 3>> DivideData(const IndexedDataset& data,
                                                  const std::string& split, SplitBy by);

}  // namespace mt::data
