// Sums and roundings are done in the same order and precision as in Megatron, because one sequence
// more or less changes the order of all samples. Tokens are divided by the same rule.
#include "worker/data/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace mt::data {
namespace {

// Where the shares of `count` begin and end: from 0 up, at most `count`.
std::array<int64_t, 4> BoundsOf(const std::array<double, 3>& shares, int64_t count) {
  std::array<int64_t, 4> bounds{};
  double cumulative = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    cumulative += shares[i];
    // Python's round() and nearbyint in the default mode both round halves to even.
    const double bound = std::nearbyint(cumulative * static_cast<double>(count));
    bounds[i + 1] = std::clamp(static_cast<int64_t>(bound), bounds[i], count);
  }
  return bounds;
}

// The sequences that hold tokens of a data set, asked for in ascending order.
class SequenceOfToken {
 public:
  explicit SequenceOfToken(const IndexedDataset& data) : data_(data) {}
  // False where no sequence holds it, since the file is another one now.
  bool Find(int64_t token) {
    for (; sequence_ < data_.num_sequences(); ++sequence_) {
      const int64_t length = data_.length(sequence_);
      end_ = begin_ + length;
      if (end_ > token) return true;
      begin_ = end_;
    }
    return false;
  }
  // Of the sequence that was found: its number, and its tokens [begin, end) of the data set.
  int64_t sequence() const { return sequence_; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

 private:
  const IndexedDataset& data_;
  int64_t sequence_ = 0;
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

StatusOr<std::array<SequenceRange, 3>> RangesOfTokens(const IndexedDataset& data,
                                                      const std::array<int64_t, 4>& bounds) {
  std::array<SequenceRange, 3> ranges;
  SequenceOfToken at(data);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t end = bounds[i + 1];
    if (bounds[i] == end) continue;
    SequenceRange& range = ranges[i];
    bool found = at.Find(bounds[i]);
    range.begin = at.sequence();
    range.skip_front = bounds[i] - at.begin();
    found = found && at.Find(end - 1);
    if (!found) {
      RETURN_IF_ERROR(data.Intact());
      return base::DataLoss(
          "{}.idx: its sequences do not have {} tokens any more: the file was written over since "
          "it was opened; put it back, or start again with the new one",
          data.prefix(), data.num_tokens());
    }
    range.end = at.sequence() + 1;
    range.skip_back = at.end() - end;
  }
  return ranges;
}

}  // namespace

std::string_view Name(SplitName split) {
  switch (split) {
    case SplitName::kTrain:
      return "train";
    case SplitName::kValid:
      return "valid";
    case SplitName::kTest:
      return "test";
  }
  return "?";
}

StatusOr<std::array<double, 3>> ParseSplit(const std::string& text) {
  const auto refuse = [&](std::string_view why) {
    return base::InvalidArgument(
        "split '{}': {}; write up to three shares for train, valid and test, such as '969,30,1'",
        text, why);
  };
  std::array<double, 3> shares{};
  size_t count = 0;
  std::string_view rest = text;
  for (bool more = true; more; ++count) {
    if (count == shares.size()) return refuse("more than three numbers");
    const size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    std::string_view item = rest.substr(0, comma);
    if (more) rest.remove_prefix(comma + 1);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc() || end != item.data() + item.size()) return refuse("not numbers");
    if (!std::isfinite(value) || value < 0) return refuse("a share is negative or not finite");
    shares[count] = value;
  }
  const double sum = shares[0] + shares[1] + shares[2];
  if (!(sum > 0) || !std::isfinite(sum)) return refuse("the shares sum to 0");
  for (double& share : shares) share /= sum;
  return shares;
}

std::string SplitText(const std::string& split, SplitBy by) {
  return by == SplitBy::kTokens ? split + " by tokens" : split;
}

int64_t CountTokens(const IndexedDataset& data, const SequenceRange& range) {
  const int64_t all = data.CountTokens(range.begin, range.end);
  return std::max<int64_t>(all - range.skip_front - range.skip_back, 0);
}

std::array<SequenceRange, 3> SplitRanges(const std::array<double, 3>& shares,
                                         int64_t num_sequences) {
  const std::array<int64_t, 4> bounds = BoundsOf(shares, num_sequences);
  std::array<SequenceRange, 3> ranges;
  for (size_t i = 0; i < ranges.size(); ++i) ranges[i] = {.begin = bounds[i], .end = bounds[i + 1]};
  return ranges;
}

StatusOr<std::array<SequenceRange, 3>> DivideData(const IndexedDataset& data,
                                                  const std::string& split, SplitBy by) {
  ASSIGN_OR_RETURN(const auto shares, ParseSplit(split));
  if (by == SplitBy::kDocuments) return SplitRanges(shares, data.num_sequences());
  return RangesOfTokens(data, BoundsOf(shares, data.num_tokens()));
}

}  // namespace mt::data
