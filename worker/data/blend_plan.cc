// The draw is greedy: sample s comes from the member that is furthest behind its share of s. With
// equal lags the first member wins, so all comparisons are strict and in Megatron's float64.
#include "worker/data/blend_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace mt::data {
namespace {

// Rows of counts are so far apart that they take an eighth of the memory of the samples.
constexpr int64_t kBlock = 1024;
constexpr int64_t kBlockPerMember = 32;

// numpy's sum of contiguous float64 (pairwise_sum in numpy/_core/src/umath/loops_utils.h.src):
// eight sums side by side up to 128 values, halves of whole eights beyond.
double PairwiseSum(std::span<const double> values) {
  const size_t n = values.size();
  if (n < 8) return std::accumulate(values.begin(), values.end(), 0.0);
  if (n > 128) {
    const size_t half = n / 2 - n / 2 % 8;
    return PairwiseSum(values.first(half)) + PairwiseSum(values.subspan(half));
  }
  double r[8];
  for (size_t k = 0; k < 8; ++k) r[k] = values[k];
  size_t i = 8;
  for (; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; ++k) r[k] += values[i + k];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

int64_t CeilOf(double value) { return static_cast<int64_t>(std::ceil(value)); }

double Lag(double weight, int64_t sample, int64_t taken) {
  return weight * std::max(static_cast<double>(sample), 1.0) - static_cast<double>(taken);
}

}  // namespace

std::vector<double> NormalizeWeights(std::span<const double> weights) {
  const double sum = PairwiseSum(weights);
  CHECK(sum > 0) << "weights that add to " << sum;
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  return shares;
}

std::vector<int64_t> AskedOfMembers(std::span<const double> shares, int64_t samples) {
  std::vector<int64_t> asked;
  for (const double share : shares) {
    const int64_t taken = CeilOf(static_cast<double>(samples) * share);
    asked.push_back(CeilOf(static_cast<double>(taken) * 1.005));
  }
  return asked;
}

BlendDraw::BlendDraw(size_t members)
    : num_members_(members),
      block_(std::max(kBlock, kBlockPerMember * static_cast<int64_t>(members))),
      taken_(members, 0) {
  CHECK(members > 0 && static_cast<int64_t>(members) <= kMaxBlendMembers) << members;
}

void BlendDraw::Take(size_t member) {
  if (num_samples() % block_ == 0)
    block_taken_.insert(block_taken_.end(), taken_.begin(), taken_.end());
  members_.push_back(static_cast<uint16_t>(member));
  ++taken_[member];
}

BlendDraw BlendDraw::ByWeights(std::span<const double> weights, int64_t samples) {
  const std::vector<double> shares = NormalizeWeights(weights);
  BlendDraw draw(shares.size());
  draw.members_.reserve(static_cast<size_t>(samples));
  for (int64_t sample = 0; sample < samples; ++sample) {
    size_t most = 0;
    double most_lag = Lag(shares[0], sample, draw.taken_[0]);
    for (size_t member = 1; member < shares.size(); ++member) {
      const double lag = Lag(shares[member], sample, draw.taken_[member]);
      if (lag > most_lag) {
        most = member;
        most_lag = lag;
      }
    }
    draw.Take(most);
  }
  return draw;
}

BlendDraw BlendDraw::Exhaustive(std::span<const int64_t> sizes) {
  const auto total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  BlendDraw draw(sizes.size());
  draw.members_.reserve(static_cast<size_t>(total));
  std::vector<double> shares;
  std::vector<size_t> left;
  for (size_t member = 0; member < sizes.size(); ++member) {
    shares.push_back(static_cast<double>(sizes[member]) / static_cast<double>(total));
    if (sizes[member] > 0) left.push_back(member);
  }
  for (int64_t sample = 0; sample < total; ++sample) {
    size_t most = 0;
    double most_lag = std::numeric_limits<double>::lowest();
    for (const size_t member : left) {
      const double lag = Lag(shares[member], sample, draw.taken_[member]);
      if (lag > most_lag) {
        most = member;
        most_lag = lag;
      }
    }
    draw.Take(most);
    if (draw.taken_[most] == sizes[most]) std::erase(left, most);
  }
  return draw;
}

BlendSample BlendDraw::At(int64_t sample) const {
  CHECK(sample >= 0 && sample < num_samples()) << "sample " << sample;
  const uint16_t member = members_[static_cast<size_t>(sample)];
  const int64_t block = sample / block_;
  const auto begin = members_.begin() + block * block_;
  const auto end = members_.begin() + sample;
  return {.member = member,
          .sample = block_taken_[static_cast<size_t>(block) * num_members_ + member] +
                    std::count(begin, end, member)};
}

std::vector<int64_t> BlendDraw::Taken(int64_t count) const {
  CHECK(count >= 0 && count <= num_samples()) << count;
  if (count == num_samples()) return taken_;
  const int64_t block = count / block_;
  const auto row = block_taken_.begin() + block * static_cast<int64_t>(num_members_);
  std::vector<int64_t> taken(row, row + static_cast<int64_t>(num_members_));
  for (int64_t i = block * block_; i < count; ++i) ++taken[members_[static_cast<size_t>(i)]];
  return taken;
}

}  // namespace mt::data
