// Device functions of the loss kernels: the operands as plain pointers, running softmax statistics,
// and a row that stays in shared memory between its statistics and its gradient.
// Legend: T' rows, v local columns, t shards.
#pragma once

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"

namespace mt::kernels::cuda {

inline constexpr int kLossThreads = 512;

template <class S>
struct LossRows {
  S* logits;
  int64_t v, valid;  // columns, and how many of them are not padding
  const int32_t* labels;
  int64_t first_column;
  float* stats;  // [t, T', 3]
  int64_t shards, rows;
  const float* weight;
  double seed;
  const double* loss_scale;
  bool write_gradient;
  double* row_sums;  // [T', 2]: weight * loss, weight
};

// Maximum and sum of e^(x - max) of the elements so far (online softmax, Milakov & Gimelshein
// 2018).
struct RowStats {
  float max = -INFINITY, sum = 0;
};

// Joins the lanes' statistics; the result is in every lane. The maximum ignores NaN, which surfaces
// in the sum.
__device__ __forceinline__ RowStats JoinWarp(const RowStats& stats) {
  const float max = WarpMax(stats.max);
  const float weight = stats.max == -INFINITY ? 1.0F : Exp(stats.max - max);
  return {max, WarpSum(stats.sum * weight)};
}

// Adds the first `count` of eight values to the statistics.
template <class S>
__device__ __forceinline__ void AddValues(const Float8& values, int count, RowStats* stats) {
  Float8 x = values;
  if (count < kGroup) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] = i < count ? x.v[i] : -INFINITY;
  }
  float max = stats->max;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) max = fmaxf(max, x.v[i]);
  const float shift = max == -INFINITY ? 0.0F : max;  // e^(-infinity - 0) is 0
  const float shift_log2e = shift * kLog2E;
  float sum = stats->sum * Exp(stats->max - shift);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) sum += ShiftedExp<S>(x.v[i], shift, shift_log2e);
  *stats = {max, sum};
}

// Joins the statistics of the block; the result is in every thread. All threads call it.
__device__ inline RowStats JoinBlock(const RowStats& stats, RowStats* shared) {
  constexpr int kWarps = kLossThreads / kWarp;
  const RowStats joined = JoinWarp(stats);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = joined;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return JoinWarp(lane < kWarps ? shared[lane] : RowStats{});
}

// Row constants of the gradient: maximum, maximum in units of log 2, and gradient scale / sum.
struct RowGrad {
  float max, max_log2e, per_sum;

  __device__ RowGrad(float row_max, float scale_per_sum)
      : max(row_max), max_log2e(row_max * kLog2E), per_sum(scale_per_sum) {}
};

// Returns the logit of the row's label, 0 if it is in another shard.
template <class S>
__device__ float Target(const LossRows<S>& a, int64_t row) {
  const int64_t label = a.labels[row] - a.first_column;
  return label >= 0 && label < a.valid ? Widen(a.logits[row * a.v + label]) : 0.0F;
}

template <class S>
__device__ void StoreStats(const LossRows<S>& a, int64_t row, const RowStats& stats, float target) {
  a.stats[3 * row] = stats.max;
  a.stats[3 * row + 1] = stats.sum;
  a.stats[3 * row + 2] = target;
}

// Stores the row's weighted loss and its weight; zero if the row is masked.
template <class S>
__device__ void StoreLoss(const LossRows<S>& a, int64_t row, const RowStats& stats, float weight,
                          float target) {
  const double loss = log(static_cast<double>(stats.sum)) + static_cast<double>(stats.max) -
                      static_cast<double>(target);
  a.row_sums[2 * row] = weight == 0 ? 0 : static_cast<double>(weight) * loss;
  a.row_sums[2 * row + 1] = static_cast<double>(weight);
}

// Returns the factor of a row's probabilities in its gradient.
template <class S>
__device__ float GradScale(const LossRows<S>& a, float weight) {
  const double loss_scale = a.loss_scale == nullptr ? 1.0 : *a.loss_scale;
  return static_cast<float>(static_cast<double>(weight) * (a.seed * loss_scale));
}

// A row on its way into shared memory and in it. Each thread copies the groups that it computes
// with, so no thread waits for another's copies; they are used in kPortions as they arrive.
template <class S>
struct SharedRow {
  static constexpr int kPortions = 4;
  const LossRows<S>& a;
  S* const row;     // in global memory
  S* const shared;  // [v]
  const int label;  // column, or negative

  __device__ __forceinline__ int Groups() const { return static_cast<int>(a.v) / kGroup; }
  __device__ __forceinline__ int PerPortion() const {
    return (Groups() + kPortions * kLossThreads - 1) / (kPortions * kLossThreads) * kLossThreads;
  }
  __device__ __forceinline__ int ValidOf(int group) const {
    return max(0, min(static_cast<int>(a.valid) - group * kGroup, kGroup));
  }

  __device__ __forceinline__ void Copy() const {
    constexpr int kStep = 16 / static_cast<int>(sizeof(S));
    for (int portion = 0; portion < kPortions; ++portion) {
      const int begin = portion * PerPortion(), end = min(Groups(), begin + PerPortion());
      for (int g = begin + static_cast<int>(threadIdx.x); g < end; g += kLossThreads) {
#pragma unroll
        for (int c = 0; c < kGroup; c += kStep) {
          CopyAsync(shared + g * kGroup + c, row + g * kGroup + c);
        }
      }
      CommitCopies();
    }
  }

  // Returns the statistics of the row, joined over the block.
  __device__ __forceinline__ RowStats Stats(RowStats* joined) const {
    RowStats stats;
    int group = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int portion = 0; portion < kPortions; ++portion) {
      WaitForPortion(portion);
      const int end = min(Groups(), (portion + 1) * PerPortion());
      for (; group < end; group += kLossThreads) {
        const Float8 x =
            Load<Access::kVector>(static_cast<const S*>(shared + group * kGroup), kGroup);
        AddValues<S>(x, ValidOf(group), &stats);
      }
    }
    return JoinBlock(stats, joined);
  }

  __device__ __forceinline__ static void WaitForPortion(int portion) {
    static_assert(kPortions == 4);
    switch (portion) {
      case 0:
        return WaitCopies<3>();
      case 1:
        return WaitCopies<2>();
      case 2:
        return WaitCopies<1>();
      default:
        return WaitCopies<0>();
    }
  }

  // Overwrites the row in global memory with dlogits: zero beyond `valid`, and everywhere if scale
  // is 0.
  __device__ __forceinline__ void WriteGrad(const RowGrad& grad, float scale) const {
#pragma unroll 2
    for (int g = static_cast<int>(threadIdx.x); g < Groups(); g += kLossThreads) {
      Float8 x = Load<Access::kVector>(static_cast<const S*>(shared + g * kGroup), kGroup);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        x.v[i] = ShiftedExp<S>(x.v[i], grad.max, grad.max_log2e) * grad.per_sum;
      }
      const int valid = ValidOf(g);
      if (valid < kGroup || label / kGroup == g) {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          if (g * kGroup + i == label) x.v[i] -= scale;
          if (i >= valid) x.v[i] = 0;
        }
      }
      Store<Access::kVector>(x, row + g * kGroup, kGroup);
    }
  }
  __device__ __forceinline__ void WriteZeros() const {
    for (int g = static_cast<int>(threadIdx.x); g < Groups(); g += kLossThreads) {
      Store<Access::kVector>(Float8{}, row + g * kGroup, kGroup);
    }
  }
};

}  // namespace mt::kernels::cuda
