// Which member of a blend gives sample s, and how many of its samples came before: Megatron's rule
// (docs/design/megatron-compat.md, "Blend"; megatron/core/datasets/blended_dataset.py and the two
// index builders of helpers.cpp). Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mt::data {

// Members are numbered by 15 bits, as Megatron's.
inline constexpr int64_t kMaxBlendMembers = 32766;

// Each weight divided by their sum, which is added in numpy's pairwise order.
std::vector<double> NormalizeWeights(std::span<const double> weights);

// How many samples each member of a blend of n samples is asked for: ceil(1.005 ceil(n w)), which
// decides the order of the member's samples. `shares`: normalised once.
std::vector<int64_t> AskedOfMembers(std::span<const double> shares, int64_t samples);

// A sample of a blend.
struct BlendSample {
  int64_t member = 0;
  int64_t sample = 0;  // of the member
  friend bool operator==(const BlendSample&, const BlendSample&) = default;
};

// The order of a blend's samples, drawn once. Two bytes a sample are kept, and the counts at every
// block of samples. Immutable after a factory; thread-safe.
class BlendDraw {
 public:
  // `samples` samples by weights, which are normalised here once more. More samples begin with
  // these.
  static BlendDraw ByWeights(std::span<const double> weights, int64_t samples);
  // Every sample of every member, in the proportion of their sizes; used-up members leave the draw.
  static BlendDraw Exhaustive(std::span<const int64_t> sizes);

  int64_t num_samples() const { return static_cast<int64_t>(members_.size()); }
  // 0 <= sample < num_samples() (CHECK). Reads up to a block of numbers.
  BlendSample At(int64_t sample) const;
  // How many samples of each member are among the first `count` ones.
  std::vector<int64_t> Taken(int64_t count) const;

 private:
  explicit BlendDraw(size_t members);
  void Take(size_t member);

  size_t num_members_;
  int64_t block_;                     // samples between two rows of counts_
  std::vector<uint16_t> members_;     // by sample
  std::vector<int64_t> taken_;        // by member, of all samples so far
  std::vector<int64_t> block_taken_;  // [blocks, members] before each block's first sample
};

}  // namespace mt::data
