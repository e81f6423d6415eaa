// Parts shared by residual add + norm (AddNorm) and its gradient: operands as plain pointers, and
// the dropout mask of a row.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/divider.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/ops/add_norm.h"

namespace mt::kernels::cuda {

// A Philox key expanded to the keys of its ten rounds (kernels/core/random.h): made once per launch
// on the host, so that kernels read round keys as constants.
struct PhiloxKeys {
  static constexpr int kRounds = 10;
  uint32_t word[kRounds][2] = {};

  PhiloxKeys() = default;
  explicit PhiloxKeys(uint64_t key) {
    for (uint32_t round = 0; round < kRounds; ++round) {
      word[round][0] = static_cast<uint32_t>(key) + round * kPhiloxWeyl0;
      word[round][1] = static_cast<uint32_t>(key >> 32) + round * kPhiloxWeyl1;
    }
  }
};

// Returns the same bits as Philox(key, counter).
__device__ __forceinline__ Philox4 Philox(const PhiloxKeys& keys, Philox4 counter) {
#pragma unroll
  for (int round = 0; round < PhiloxKeys::kRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * counter.word[0];
    const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * counter.word[2];
    counter = {{static_cast<uint32_t>(p1 >> 32) ^ counter.word[1] ^ keys.word[round][0],
                static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ counter.word[3] ^ keys.word[round][1],
                static_cast<uint32_t>(p0)}};
  }
  return counter;
}

// Hidden dropout of rows in [s, b] order; threshold 0: none.
struct HiddenDropout {
  uint32_t threshold = 0;
  float scale = 1;
  PhiloxKeys keys;
  Divider batch;                       // b
  const int64_t* samples = nullptr;    // [b]
  const int32_t* positions = nullptr;  // [s]
};

inline HiddenDropout RawDropout(const Dropout& d, int64_t rows, int64_t batch) {
  if (!d.rate.active()) return {};
  CHECK(d.samples.NumElements() == batch && d.positions.NumElements() * batch == rows);
  CHECK_LT(d.rate.threshold, 1U << 16) << "dropout of everything";
  return {.threshold = d.rate.threshold,
          .scale = static_cast<float>(d.rate.Scale()),
          .keys = PhiloxKeys(d.key),
          .batch = Divider(batch),
          .samples = d.samples.Data<int64_t>(),
          .positions = d.positions.Data<int32_t>()};
}

// The position and the sample number on which a row's masks depend. Loaded early, because the
// addresses take two dependent loads.
struct MaskRow {
  int32_t position = 0;
  int64_t sample = 0;
};
__device__ __forceinline__ MaskRow MaskRowOf(const HiddenDropout& d, int64_t row) {
  uint32_t sample_idx;
  const uint32_t s = d.batch.Quotient(static_cast<uint32_t>(row), &sample_idx);
  return {d.positions[s], d.samples[sample_idx]};
}

// Returns the random bits of the eight channels from `channel` (a multiple of 8) on.
__device__ __forceinline__ Philox4 MaskBits(const HiddenDropout& d, const MaskRow& row,
                                            int64_t channel) {
  return Philox(d.keys, HiddenDropoutCounter(channel, row.position, row.sample));
}

// Stores the partials' data pointers in `out`; returns false if one of them is not 16-byte aligned.
template <class S>
bool FillPartials(const Partials& partials, int64_t elements, const S** out) {
  CHECK(partials.count >= 0 && partials.count <= kMaxPartials) << partials.count;
  bool aligned = true;
  for (int i = 0; i < partials.count; ++i) {
    const Tensor& tensor = partials.tensor[static_cast<size_t>(i)];
    CHECK_EQ(tensor.NumElements(), elements);
    out[i] = tensor.Data<S>();
    aligned = aligned && IsAligned16(tensor.data);
  }
  return aligned;
}

// Returns whether rows of h elements of all tensors begin at multiples of 16 bytes.
template <class S, class... Tensors>
bool RowsAligned(int64_t h, const Tensors&... tensors) {
  return h % kGroup == 0 && (IsAligned16(tensors.data) && ...);
}

}  // namespace mt::kernels::cuda
