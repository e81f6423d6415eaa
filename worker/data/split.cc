// Sums and roundings are done in the same order and precision as in Megatron, because one sequence
// more or less changes the order of all samples.
#include "worker/data/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace mt::data {

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

std::array<SequenceRange, 3> SplitRanges(const std::array<double, 3>& shares,
                                         int64_t num_sequences) {
  std::array<SequenceRange, 3> ranges;
  double cumulative = 0;
  int64_t begin = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    cumulative += shares[i];
    // Python's round() and nearbyint in the default mode both round halves to even.
    const double bound = std::nearbyint(cumulative * static_cast<double>(num_sequences));
    const int64_t end = std::clamp(static_cast<int64_t>(bound), begin, num_sequences);
    ranges[i] = {begin, end};
    begin = end;
  }
  return ranges;
}

}  // namespace mt::data
