// Cross-entropy with one block per row. If two rows fit into an SM's shared memory (50,304 bf16 are
// 100 KB), statistics and gradient in one call read a row once; otherwise they read it again,
// mostly from the L2 cache. Loss sums go through one value per row in the stream's scratch, added
// in a fixed order.
// Legend: T' rows, v local columns, t shards.
#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/loss_rows.cuh"

namespace mt::kernels::cuda {
namespace {

template <Access kAccess, class S>
__device__ __forceinline__ void AddGroup(const S* from, int count, RowStats* stats) {
  AddValues<S>(Load<kAccess>(from, count), count, stats);
}

// The parts of a row in which the block processes it: single elements up to the first 16-byte
// boundary, groups of eight, and the remaining elements.
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

template <class S>
__device__ RowStats BlockStats(const S* row, int64_t valid, RowStats* shared) {
  const RowParts<S> parts(row, valid);
  const int thread = static_cast<int>(threadIdx.x);
  RowStats stats;
  if (thread < parts.head) AddGroup<Access::kElements>(row + thread, 1, &stats);
#pragma unroll 4
  for (int64_t g = thread; g < parts.groups; g += kLossThreads) {
    AddGroup<Access::kVector>(row + parts.head + g * kGroup, kGroup, &stats);
  }
  if (parts.tail + thread < valid) {
    AddGroup<Access::kElements>(row + parts.tail + thread, 1, &stats);
  }
  return JoinBlock(stats, shared);
}

template <Access kAccess, class S>
__device__ __forceinline__ void WriteGroup(const RowGrad& grad, S* at, int count) {
  Float8 x = Load<kAccess>(at, count);
#pragma unroll
  for (int i = 0; i < kGroup; ++i)
    x.v[i] = ShiftedExp<S>(x.v[i], grad.max, grad.max_log2e) * grad.per_sum;
  Store<kAccess>(x, at, count);
}

// Overwrites the row with dlogits, zero beyond `valid`.
template <class S>
__device__ void BlockGrad(const LossRows<S>& a, S* row, int64_t label, const RowGrad& grad,
                          float scale) {
  const RowParts<S> parts(row, a.valid);
  const int thread = static_cast<int>(threadIdx.x);
  const bool mine = label >= 0 && label < a.valid;
  // The label's element is computed separately so that it, too, is rounded once.
  const float at_label = mine ? Exp(Widen(row[label]) - grad.max) * grad.per_sum - scale : 0.0F;
  __syncthreads();
  if (thread < parts.head) WriteGroup<Access::kElements>(grad, row + thread, 1);
#pragma unroll 4
  for (int64_t g = thread; g < parts.groups; g += kLossThreads) {
    WriteGroup<Access::kVector>(grad, row + parts.head + g * kGroup, kGroup);
  }
  if (parts.tail + thread < a.valid)
    WriteGroup<Access::kElements>(grad, row + parts.tail + thread, 1);
  for (int64_t c = a.valid + thread; c < a.v; c += kLossThreads) row[c] = Narrow<S>(0.0F);
  __syncthreads();
  if (mine && thread == 0) row[label] = Narrow<S>(at_label);
}

// 512 threads, 128 bytes of shared memory.
template <class S>
__global__ void __launch_bounds__(kLossThreads) StatsKernel(const LossRows<S> a) {
  __shared__ RowStats shared[kLossThreads / kWarp];
  const int64_t row = blockIdx.x;
  const RowStats stats = BlockStats(a.logits + row * a.v, a.valid, shared);
  if (threadIdx.x == 0) StoreStats(a, row, stats, Target(a, row));
}

// Combines the row's shards in shard order. A shard of padding columns alone has maximum -infinity
// and sum 0.
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

// kWithStats: one shard, whose statistics are computed here first. 512 threads, 128 bytes of shared
// memory.
template <class S, bool kWithStats>
__global__ void __launch_bounds__(kLossThreads) FinishKernel(const LossRows<S> a) {
  __shared__ RowStats shared[kLossThreads / kWarp];
  const int64_t row = blockIdx.x;
  S* const logits = a.logits + row * a.v;
  const int64_t label = a.labels[row] - a.first_column;
  const float weight = a.weight[row];
  RowStats stats;
  float target = 0;
  if constexpr (kWithStats) {
    stats = BlockStats(logits, a.valid, shared);
    target = Target(a, row);
    if (threadIdx.x == 0) StoreStats(a, row, stats, target);
  } else if (weight != 0) {
    target = Combine(a, row, &stats);
  }
  if (weight == 0) {  // masked: no part in anything, not even as 0 * infinity
    __syncthreads();  // the label's logit has been read
    for (int64_t c = threadIdx.x; a.write_gradient && c < a.v; c += kLossThreads) {
      logits[c] = Narrow<S>(0.0F);
    }
    if (threadIdx.x == 0) a.row_sums[2 * row] = a.row_sums[2 * row + 1] = 0;
    return;
  }
  if (threadIdx.x == 0) StoreLoss(a, row, stats, weight, target);
  if (!a.write_gradient) return;
  const float scale = GradScale(a, weight);
  BlockGrad(a, logits, label, {stats.max, scale / stats.sum}, scale);
}

// Like FinishKernel<S, true> for rows in shared memory. 512 threads; shared memory: 128 bytes, and
// v elements (dynamic).
template <class S>
__global__ void __launch_bounds__(kLossThreads, 2) SharedFinishKernel(const LossRows<S> a) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ RowStats joined[kLossThreads / kWarp];
  const int64_t row = blockIdx.x;
  const int64_t label = a.labels[row] - a.first_column;
  const bool mine = label >= 0 && label < a.valid;
  S* const logits = a.logits + row * a.v;
  const SharedRow<S> z{a, logits, reinterpret_cast<S*>(shared),
                       mine ? static_cast<int>(label) : -kGroup};
  z.Copy();
  const float weight = a.weight[row];
  const float target = mine ? Widen(logits[label]) : 0.0F;
  const RowStats stats = z.Stats(joined);
  if (threadIdx.x == 0) {
    StoreStats(a, row, stats, target);
    StoreLoss(a, row, stats, weight, target);
  }
  if (!a.write_gradient) return;
  if (weight == 0) return z.WriteZeros();  // masked: no part in anything, not even as 0 * infinity
  const float scale = GradScale(a, weight);
  z.WriteGrad({stats.max, scale / stats.sum}, scale);
}

// out[k] += sum over rows of row_sums[row][k]. One block of 1024 threads, 256 bytes of shared
// memory.
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

// Returns the number of this shard's columns that are not padding.
int64_t ValidColumns(int64_t v, int64_t first_column, int64_t real_columns) {
  return std::clamp<int64_t>(real_columns - first_column, 0, v);
}

// Launches SharedFinishKernel if two rows fit into an SM's shared memory; otherwise returns false.
template <class S>
bool LaunchShared(const CudaStream& stream, const LossRows<S>& a) {
  if (a.v % kGroup != 0 || !IsAligned16(a.logits)) return false;
  constexpr int64_t kReserved = 2048;  // bytes per block: 1 KiB of the system, static shared memory
  int per_sm = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&per_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                                    stream.ordinal()));
  const int64_t bytes = a.v * int64_t{sizeof(S)};
  if (2 * (bytes + kReserved) > per_sm) return false;
  CUDA_CHECK(cudaFuncSetAttribute(
      SharedFinishKernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  SharedFinishKernel<S>
      <<<static_cast<unsigned>(a.rows), kLossThreads, static_cast<size_t>(bytes), stream.raw()>>>(
          a);
  CheckLaunch("loss StatsFinish");
  return true;
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
    if (kWithStats && LaunchShared(cuda_stream, raw)) return;
    FinishKernel<S, kWithStats>
        <<<static_cast<unsigned>(rows), kLossThreads, 0, cuda_stream.raw()>>>(raw);
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
    StatsKernel<S><<<static_cast<unsigned>(rows), kLossThreads, 0, Raw(stream)>>>(raw);
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
