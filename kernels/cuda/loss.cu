// Cross-entropy: a block per row reads the logits once from memory for max, sum and target, and,
// where it writes the gradient too, a second time, mostly from the L2 cache (a row of 50,304 bf16
// is 100 KB). Loss sums go through a value per row in the stream's scratch, added in a fixed order.
// Legend: T' rows, v local columns, t shards.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mt::kernels::cuda {
namespace {

constexpr int kThreads = 512;

template <class S>
struct LossRows {
  S* logits;
  int64_t v, valid;  // columns, those that are not padding
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

struct RowStats {
  float max = -INFINITY, sum = 0;
};

// Both ranges' maximum and sum of e^(x - max). NaN is passed over by the maximum and surfaces in
// the sum.
__device__ __forceinline__ RowStats Join(const RowStats& a, const RowStats& b) {
  const float max = fmaxf(a.max, b.max);
  if (max == -INFINITY) return {max, a.sum + b.sum};
  return {max, a.sum * Exp(a.max - max) + b.sum * Exp(b.max - max)};
}

template <class S>
__device__ __forceinline__ void AddValues(const Float8& x, int count, RowStats* stats) {
  float max = stats->max;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) max = i < count ? fmaxf(max, x.v[i]) : max;
  const float shift = max == -INFINITY ? 0.0F : max;  // e^(-infinity - 0) weighs nothing
  const float shift_log2e = shift * kLog2E;
  float sum = stats->sum;
  if (max > stats->max) sum *= Exp(stats->max - shift);
#pragma unroll
  for (int i = 0; i < kGroup; ++i)
    sum += i < count ? ShiftedExp<S>(x.v[i], shift, shift_log2e) : 0.0F;
  *stats = {max, sum};
}

template <Access kAccess, class S>
__device__ __forceinline__ void AddGroup(const S* from, int count, RowStats* stats) {
  AddValues<S>(Load<kAccess>(from, count), count, stats);
}

// A row as the block walks it: single elements up to the first 16-byte border, groups of eight, and
// the rest.
template <class S>
struct RowParts {
  int64_t head, groups, tail;  // elements, groups, first element after the groups

  __device__ RowParts(const S* row, int64_t n) {
    const auto offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % 16);
    head = min(n, offset == 0 ? int64_t{0} : (16 - offset) / int64_t{sizeof(S)});
    groups = (n - head) / kGroup;
    tail = head + groups * kGroup;
  }
};

// The same statistics in every thread.
__device__ RowStats JoinBlock(RowStats stats, RowStats* shared) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const RowStats other{__shfl_xor_sync(kAllLanes, stats.max, offset),
                         __shfl_xor_sync(kAllLanes, stats.sum, offset)};
    stats = Join(stats, other);
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = stats;
  __syncthreads();
  RowStats all;
  for (int w = 0; w < kThreads / kWarp; ++w) all = Join(all, shared[w]);
  return all;
}

template <class S>
__device__ RowStats BlockStats(const S* row, int64_t valid, RowStats* shared) {
  const RowParts<S> parts(row, valid);
  const int thread = static_cast<int>(threadIdx.x);
  RowStats stats;
  if (thread < parts.head) AddGroup<Access::kElements>(row + thread, 1, &stats);
#pragma unroll 4
  for (int64_t g = thread; g < parts.groups; g += kThreads) {
    AddGroup<Access::kVector>(row + parts.head + g * kGroup, kGroup, &stats);
  }
  if (parts.tail + thread < valid) {
    AddGroup<Access::kElements>(row + parts.tail + thread, 1, &stats);
  }
  return JoinBlock(stats, shared);
}

struct RowGrad {
  float max, max_log2e, per_sum;

  __device__ RowGrad(float row_max, float scale_per_sum)
      : max(row_max), max_log2e(row_max * kLog2E), per_sum(scale_per_sum) {}
};

template <Access kAccess, class S>
__device__ __forceinline__ void WriteGroup(const RowGrad& grad, S* at, int count) {
  Float8 x = Load<kAccess>(at, count);
#pragma unroll
  for (int i = 0; i < kGroup; ++i)
    x.v[i] = ShiftedExp<S>(x.v[i], grad.max, grad.max_log2e) * grad.per_sum;
  Store<kAccess>(x, at, count);
}

// Writes dlogits over the row, zero beyond `valid`.
template <class S>
__device__ void BlockGrad(const LossRows<S>& a, S* row, int64_t label, const RowGrad& grad,
                          float scale) {
  const RowParts<S> parts(row, a.valid);
  const int thread = static_cast<int>(threadIdx.x);
  const bool mine = label >= 0 && label < a.valid;
  // The label's element is computed apart, so that it too is rounded once.
  const float at_label = mine ? Exp(Widen(row[label]) - grad.max) * grad.per_sum - scale : 0.0F;
  __syncthreads();
  if (thread < parts.head) WriteGroup<Access::kElements>(grad, row + thread, 1);
#pragma unroll 4
  for (int64_t g = thread; g < parts.groups; g += kThreads) {
    WriteGroup<Access::kVector>(grad, row + parts.head + g * kGroup, kGroup);
  }
  if (parts.tail + thread < a.valid)
    WriteGroup<Access::kElements>(grad, row + parts.tail + thread, 1);
  for (int64_t c = a.valid + thread; c < a.v; c += kThreads) row[c] = Narrow<S>(0.0F);
  __syncthreads();
  if (mine && thread == 0) row[label] = Narrow<S>(at_label);
}

template <class S>
__device__ void StoreStats(const LossRows<S>& a, int64_t row, const RowStats& stats) {
  const int64_t label = a.labels[row] - a.first_column;
  const bool mine = label >= 0 && label < a.valid;
  a.stats[3 * row] = stats.max;
  a.stats[3 * row + 1] = stats.sum;
  a.stats[3 * row + 2] = mine ? Widen(a.logits[row * a.v + label]) : 0.0F;
}

// 512 threads, 128 bytes shared.
template <class S>
__global__ void __launch_bounds__(kThreads) StatsKernel(const LossRows<S> a) {
  __shared__ RowStats shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  const RowStats stats = BlockStats(a.logits + row * a.v, a.valid, shared);
  if (threadIdx.x == 0) StoreStats(a, row, stats);
}

// The row's shards combined in shard order. A shard of padding alone has max -infinity and sum 0.
template <class S>
__device__ float Combine(const LossRows<S>& a, int64_t row, RowStats* all) {
  float target = 0;
  for (int64_t t = 0; t < a.shards; ++t)
    all->max = fmaxf(all->max, a.stats[3 * (t * a.rows + row)]);
  for (int64_t t = 0; t < a.shards; ++t) {
    const float* s = a.stats + 3 * (t * a.rows + row);
    all->sum += s[1] * (s[0] == -INFINITY ? 0.0F : Exp(s[0] - all->max));
    target += s[2];
  }
  return target;
}

// kWithStats: one shard, whose stats are computed here first. 512 threads, 128 bytes shared.
template <class S, bool kWithStats>
__global__ void __launch_bounds__(kThreads) FinishKernel(const LossRows<S> a) {
  __shared__ RowStats shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  S* const logits = a.logits + row * a.v;
  const int64_t label = a.labels[row] - a.first_column;
  const float weight = a.weight[row];
  RowStats stats;
  float target = 0;
  if constexpr (kWithStats) {
    stats = BlockStats(logits, a.valid, shared);
    if (label >= 0 && label < a.valid) target = Widen(logits[label]);
    if (threadIdx.x == 0) StoreStats(a, row, stats);
  } else if (weight != 0) {
    target = Combine(a, row, &stats);
  }
  if (weight == 0) {  // masked: no part in anything, not even as 0 * infinity
    __syncthreads();  // the target has been read
    for (int64_t c = threadIdx.x; a.write_gradient && c < a.v; c += kThreads) {
      logits[c] = Narrow<S>(0.0F);
    }
    if (threadIdx.x == 0) a.row_sums[2 * row] = a.row_sums[2 * row + 1] = 0;
    return;
  }
  if (threadIdx.x == 0) {
    const double loss = log(static_cast<double>(stats.sum)) + static_cast<double>(stats.max) -
                        static_cast<double>(target);
    a.row_sums[2 * row] = static_cast<double>(weight) * loss;
    a.row_sums[2 * row + 1] = static_cast<double>(weight);
  }
  if (!a.write_gradient) return;
  const double loss_scale = a.loss_scale == nullptr ? 1.0 : *a.loss_scale;
  const auto scale = static_cast<float>(static_cast<double>(weight) * (a.seed * loss_scale));
  BlockGrad(a, logits, label, {stats.max, scale / stats.sum}, scale);
}

// out[k] += sum over rows of row_sums[row][k]. One block of 1024 threads, 256 bytes shared.
__global__ void __launch_bounds__(1024)
    SumRowsKernel(const double* __restrict__ row_sums, int64_t rows, double* __restrict__ out) {
  __shared__ double shared[kWarp];
  double loss = 0, weight = 0;
  for (int64_t row = threadIdx.x; row < rows; row += 1024) {
    loss += row_sums[2 * row];
    weight += row_sums[2 * row + 1];
  }
  loss = BlockSum(loss, shared);
  weight = BlockSum(weight, shared);
  if (threadIdx.x != 0) return;
  out[0] += loss;
  out[1] += weight;
}

// Columns of the shard that are not padding.
int64_t ValidColumns(int64_t v, int64_t first_column, int64_t real_columns) {
  return std::clamp<int64_t>(real_columns - first_column, 0, v);
}

template <bool kWithStats>
void LaunchFinish(const Stream& stream, const LossFinishArgs& a) {
  const int64_t rows = a.logits.shape[0], v = a.logits.shape[1];
  CHECK_EQ(a.stats.shape.rank(), 3);
  CHECK_EQ(a.stats.NumElements(), a.stats.shape[0] * rows * 3);
  CHECK(a.labels.NumElements() == rows && a.weight.NumElements() == rows);
  CHECK_EQ(a.sums.NumElements(), 2);
  CHECK_LE(rows * 2 * int64_t{sizeof(double)}, kStreamScratchBytes);
  if (rows == 0) return;
  const CudaStream& cuda_stream = CudaStreamOf(stream);
  auto* const row_sums = static_cast<double*>(cuda_stream.scratch());
  ForGpuType(a.logits.dtype, "loss Finish", [&](auto zero) {
    using S = decltype(zero);
    const LossRows<S> raw{.logits = a.logits.Data<S>(),
                          .v = v,
                          .valid = ValidColumns(v, a.first_column, a.real_columns),
                          .labels = a.labels.Data<int32_t>(),
                          .first_column = a.first_column,
                          .stats = a.stats.Data<float>(),
                          .shards = a.stats.shape[0],
                          .rows = rows,
                          .weight = a.weight.Data<float>(),
                          .seed = a.seed,
                          .loss_scale = a.loss_scale,
                          .write_gradient = a.write_gradient,
                          .row_sums = row_sums};
    FinishKernel<S, kWithStats>
        <<<static_cast<unsigned>(rows), kThreads, 0, cuda_stream.raw()>>>(raw);
    CheckLaunch("loss Finish");
  });
  SumRowsKernel<<<1, 1024, 0, cuda_stream.raw()>>>(row_sums, rows, a.sums.Data<double>());
  CheckLaunch("loss Finish");
}

}  // namespace

void CudaLoss::Stats(Stream& stream, const LossStatsArgs& a) const {
  const int64_t rows = a.logits.shape[0], v = a.logits.shape[1];
  CHECK(a.labels.NumElements() == rows && a.stats.NumElements() == 3 * rows);
  if (rows == 0) return;
  ForGpuType(a.logits.dtype, "loss Stats", [&](auto zero) {
    using S = decltype(zero);
    const LossRows<S> raw{.logits = a.logits.Data<S>(),
                          .v = v,
                          .valid = ValidColumns(v, a.first_column, a.real_columns),
                          .labels = a.labels.Data<int32_t>(),
                          .first_column = a.first_column,
                          .stats = a.stats.Data<float>()};
    StatsKernel<S><<<static_cast<unsigned>(rows), kThreads, 0, Raw(stream)>>>(raw);
    CheckLaunch("loss Stats");
  });
}

void CudaLoss::Finish(Stream& stream, const LossFinishArgs& a) const {
  LaunchFinish<false>(stream, a);
}

void CudaLoss::StatsFinish(Stream& stream, const LossFinishArgs& a) const {
  CHECK_EQ(a.stats.shape[0], 1);
  LaunchFinish<true>(stream, a);
}

}  // namespace mt::kernels::cuda
