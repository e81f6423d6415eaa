// The draw is greedy: sample s comes from the member that is furthest behind its share of s. With
// equal lags the first member wins, so all comparisons are strict and in Megatron's float64.
#include "worker/data/blend_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/base/log.h"

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

constexpr int64_t kPad = 64;
int64_t PaddedMembers(int64_t samples) {
  return (samples * int64_t{sizeof(uint16_t)} + kPad - 1) / kPad * kPad;
}

int64_t BlockOf(size_t members) {
  return std::max(kBlock, kBlockPerMember * static_cast<int64_t>(members));
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

BlendDraw::Drawn::Drawn(size_t num_members) : taken(num_members, 0), block(BlockOf(num_members)) {
  CHECK(num_members > 0 && static_cast<int64_t>(num_members) <= kMaxBlendMembers) << num_members;
}

void BlendDraw::Drawn::Take(size_t member) {
  if (std::ssize(members) % block == 0)
    block_taken.insert(block_taken.end(), taken.begin(), taken.end());
  members.push_back(static_cast<uint16_t>(member));
  ++taken[member];
}

BlendDraw::BlendDraw(Drawn drawn)
    : drawn_(std::make_shared<const Drawn>(std::move(drawn))),
      block_(drawn_->block),
      members_(drawn_->members),
      block_taken_(drawn_->block_taken),
      taken_(drawn_->taken) {}

BlendDraw BlendDraw::ByWeights(std::span<const double> weights, int64_t samples) {
  const std::vector<double> shares = NormalizeWeights(weights);
  Drawn draw(shares.size());
  draw.members.reserve(static_cast<size_t>(samples));
  for (int64_t sample = 0; sample < samples; ++sample) {
    size_t most = 0;
    double most_lag = Lag(shares[0], sample, draw.taken[0]);
    for (size_t member = 1; member < shares.size(); ++member) {
      const double lag = Lag(shares[member], sample, draw.taken[member]);
      if (lag > most_lag) {
        most = member;
        most_lag = lag;
      }
    }
    draw.Take(most);
  }
  return BlendDraw(std::move(draw));
}

BlendDraw BlendDraw::Exhaustive(std::span<const int64_t> sizes) {
  const auto total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  Drawn draw(sizes.size());
  draw.members.reserve(static_cast<size_t>(total));
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
      const double lag = Lag(shares[member], sample, draw.taken[member]);
      if (lag > most_lag) {
        most = member;
        most_lag = lag;
      }
    }
    draw.Take(most);
    if (draw.taken[most] == sizes[most]) std::erase(left, most);
  }
  return BlendDraw(std::move(draw));
}

int64_t BlendDraw::ImageBytes(size_t members, int64_t samples) {
  const int64_t block = BlockOf(members);
  const int64_t rows = (samples + block - 1) / block + 1;  // and taken
  return PaddedMembers(samples) + rows * static_cast<int64_t>(members * sizeof(int64_t));
}

BlendDraw::BlendDraw(size_t members, int64_t samples, MappedFile file)
    : file_(std::make_shared<const MappedFile>(std::move(file))), block_(BlockOf(members)) {
  const std::byte* const image = file_->data() + kCacheHeaderBytes;
  const auto rows = static_cast<size_t>((samples + block_ - 1) / block_);
  const auto* const counts = reinterpret_cast<const int64_t*>(image + PaddedMembers(samples));
  members_ = {reinterpret_cast<const uint16_t*>(image), static_cast<size_t>(samples)};
  block_taken_ = {counts, rows * members};
  taken_ = {counts + rows * members, members};
}

Status BlendDraw::WriteImage(ImageSink* sink) const {
  constexpr std::array<char, kPad> kZeros{};
  const size_t bytes = members_.size_bytes();
  RETURN_IF_ERROR(sink->Append(members_.data(), bytes));
  RETURN_IF_ERROR(
      sink->Append(kZeros.data(), static_cast<size_t>(PaddedMembers(num_samples())) - bytes));
  RETURN_IF_ERROR(sink->Append(block_taken_.data(), block_taken_.size_bytes()));
  return sink->Append(taken_.data(), taken_.size_bytes());
}

bool BlendDraw::lost() const { return file_ != nullptr && file_->lost(); }

BlendDraw BlendDraw::Shared(const DataCache& cache, const std::string& what, size_t members,
                            int64_t samples, const std::function<BlendDraw()>& draw) {
  if (cache.folder.empty()) return draw();
  const CacheFileArgs args = {.what = "draw of a blend",
                              .magic = "MTBLEND",
                              .key = base::Hash128Hex("megatrain blend draw 1\n" + what),
                              .image_bytes = ImageBytes(members, samples)};
  StatusOr<MappedFile> file = LoadOrMakeFile(
      cache, args, [&](ImageSink* sink) -> Status { return draw().WriteImage(sink); });
  if (file.ok()) return {members, samples, std::move(file).value()};
  log::Warn("the draw of a blend cannot be kept in the data cache, every rank makes its own",
            {{"path", CachePath(cache, args.key)}, {"why", base::Message(file.status())}});
  return draw();
}

BlendDraw BlendDraw::SharedByWeights(const DataCache& cache, std::span<const double> weights,
                                     int64_t samples) {
  std::string what = fmt::format("weights of {} samples\n", samples);
  for (const double weight : weights) what += fmt::format("{:a}\n", weight);
  return Shared(cache, what, weights.size(), samples, [&] { return ByWeights(weights, samples); });
}

BlendDraw BlendDraw::SharedExhaustive(const DataCache& cache, std::span<const int64_t> sizes) {
  return Shared(cache, fmt::format("sizes\n{}\n", fmt::join(sizes, "\n")), sizes.size(),
                std::accumulate(sizes.begin(), sizes.end(), int64_t{0}),
                [&] { return Exhaustive(sizes); });
}

BlendSample BlendDraw::At(int64_t sample) const {
  CHECK(sample >= 0 && sample < num_samples()) << "sample " << sample;
  const size_t member = std::min<size_t>(members_[static_cast<size_t>(sample)], taken_.size() - 1);
  const int64_t block = sample / block_;
  const auto begin = members_.begin() + block * block_;
  const auto end = members_.begin() + sample;
  return {.member = static_cast<int64_t>(member),
          .sample = block_taken_[static_cast<size_t>(block) * taken_.size() + member] +
                    std::count(begin, end, static_cast<uint16_t>(member))};
}

std::vector<int64_t> BlendDraw::Taken(int64_t count) const {
  CHECK(count >= 0 && count <= num_samples()) << count;
  if (count == num_samples()) return {taken_.begin(), taken_.end()};
  const int64_t block = count / block_;
  const auto row = block_taken_.begin() + block * std::ssize(taken_);
  std::vector<int64_t> taken(row, row + std::ssize(taken_));
  for (int64_t i = block * block_; i < count; ++i)
    ++taken[std::min<size_t>(members_[static_cast<size_t>(i)], taken.size() - 1)];
  return taken;
}

}  // namespace mt::data
