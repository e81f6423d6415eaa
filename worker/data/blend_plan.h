// Which member of a blend gives sample s, and how many of its samples came before: Megatron's rule
// (docs/design/megatron-compat.md, "Blend"; megatron/core/datasets/blended_dataset.py and the two
// index builders of helpers.cpp). Pure arithmetic, but for the draws that processes share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/data/cache_file.h"

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
// block of samples: in memory, or in a file of the data cache, which may be cut meanwhile: what is
// read is to be believed only where lost() is false afterwards. Immutable after a factory;
// thread-safe.
class BlendDraw {
 public:
  // `samples` samples by weights, which are normalised here once more. More samples begin with
  // these.
  static BlendDraw ByWeights(std::span<const double> weights, int64_t samples);
  // Every sample of every member, in the proportion of their sizes; used-up members leave the draw.
  static BlendDraw Exhaustive(std::span<const int64_t> sizes);
  // The same draws, made by one process for all that have the cache; without a folder, or where it
  // cannot be written (logged), each makes its own. Block.
  static BlendDraw SharedByWeights(const DataCache& cache, std::span<const double> weights,
                                   int64_t samples);
  static BlendDraw SharedExhaustive(const DataCache& cache, std::span<const int64_t> sizes);

  int64_t num_samples() const { return static_cast<int64_t>(members_.size()); }
  // As MappedFile's.
  bool lost() const;
  // 0 <= sample < num_samples() (CHECK). Reads up to a block of numbers. A member is one of the
  // blend's, whatever was read.
  BlendSample At(int64_t sample) const;
  // How many samples of each member are among the first `count` ones.
  std::vector<int64_t> Taken(int64_t count) const;

 private:
  // The numbers while they are drawn.
  struct Drawn {
    explicit Drawn(size_t num_members);
    void Take(size_t member);
    std::vector<uint16_t> members{};     // by sample
    std::vector<int64_t> block_taken{};  // [blocks, members] before each block's first sample
    std::vector<int64_t> taken{};        // by member, of all samples so far
    int64_t block;                       // samples between two rows of block_taken
  };
  explicit BlendDraw(Drawn drawn);
  // The image of a draw: members, padded to 64 bytes, then block_taken, then taken.
  BlendDraw(size_t members, int64_t samples, MappedFile file);
  static int64_t ImageBytes(size_t members, int64_t samples);
  Status WriteImage(ImageSink* sink) const;
  static BlendDraw Shared(const DataCache& cache, const std::string& what, size_t members,
                          int64_t samples, const std::function<BlendDraw()>& draw);

  std::shared_ptr<const Drawn> drawn_;  // either, which copies of the draw share
  std::shared_ptr<const MappedFile> file_;
  int64_t block_ = 0;
  std::span<const uint16_t> members_;
  std::span<const int64_t> block_taken_;
  std::span<const int64_t> taken_;
};

}  // namespace mt::data
