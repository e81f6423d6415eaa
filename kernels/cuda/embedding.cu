// Embedding lookup, and its gradient by segments of equal tokens: the owner of a table row adds all
// of its gradient rows in order, so there are no atomics on numbers and the bits are equal in every
// run.
#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/divider.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/reduce.cuh"

namespace mt::kernels::cuda {
namespace {

template <class S>
struct GatherOp {
  const int32_t* tokens;
  const S* table;
  int64_t v, h, first_row;
  S* out;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    if constexpr (kAccess == Access::kVector) {
      Group<kAccess>(first, count);
    } else {
      for (int i = 0; i < count; ++i) Group<kAccess>(first + i, 1);
    }
  }
  template <Access kAccess>
  __device__ __forceinline__ void Group(int64_t at, int count) const {
    const int64_t row = tokens[at / h] - first_row;
    Float8 x{};
    if (row >= 0 && row < v) x = Load<kAccess>(table + row * h + at % h, count);
    Store<kAccess>(x, out + at, count);
  }
};

template <class S>
struct ScatterRows {
  const S* dy;
  const int32_t *order, *token, *start, *count;
  int64_t num_segments, h, v, first_row;
  Divider groups;  // groups of eight channels
  float* dtable;
  const int32_t* positions;  // [s]
  int64_t s, batch;
  float* dposition;

  __device__ __forceinline__ int64_t Segments() const {
    return count == nullptr ? num_segments : int64_t{*count};
  }
};

constexpr int kScatterThreads = 256;
constexpr int kLongSegment = 32;  // rows; a whole block shares the work of longer segments
constexpr int kAhead = 8;         // rows loaded before any is added

// sum += rows `row(begin)`, `row(begin + step)`, ..., before `end`, of dy, channels [c, c + 8).
template <Access kAccess, class S, class RowOf>
__device__ __forceinline__ void SumRows(const ScatterRows<S>& a, int64_t c, int count,
                                        int32_t begin, int32_t end, int32_t step, const RowOf& row,
                                        Float8* sum) {
  const auto load = [&](int32_t i) {
    return LoadStored<kAccess>(a.dy + static_cast<int64_t>(row(i)) * a.h + c, count);
  };
  const auto add = [&](const Stored8<S>& stored) {
    const Float8 x = Widen(stored);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) sum->v[k] += x.v[k];
  };
  int32_t i = begin;
  for (; i + (kAhead - 1) * step < end; i += kAhead * step) {
    Stored8<S> ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) ahead[k] = load(i + k * step);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) add(ahead[k]);
  }
#pragma unroll 4
  for (; i < end; i += step) add(load(i));
}

template <Access kAccess>
__device__ __forceinline__ void AddToTable(float* to, int count, const Float8& sum) {
  Float8 x = Load<kAccess>(to, count);
#pragma unroll
  for (int k = 0; k < kGroup; ++k) x.v[k] += sum.v[k];
  Store<kAccess>(x, to, count);
}

// Short segments: one thread per segment and eight channels. 256 threads.
template <class S, Access kAccess>
__global__ void __launch_bounds__(kScatterThreads) ShortSegmentsKernel(const ScatterRows<S> a) {
  uint32_t group;
  const int64_t segment = a.groups.Quotient(blockIdx.x * kScatterThreads + threadIdx.x, &group);
  if (segment >= a.Segments()) return;
  const int32_t begin = a.start[segment], end = a.start[segment + 1];
  const int64_t row = a.token[segment] - a.first_row;
  if (row < 0 || row >= a.v || end - begin > kLongSegment) return;
  const int64_t c = int64_t{group} * kGroup;
  const int count = static_cast<int>(min(a.h - c, int64_t{kGroup}));
  Float8 sum{};
  SumRows<kAccess>(
      a, c, count, begin, end, 1, [&](int32_t i) { return a.order[i]; }, &sum);
  AddToTable<kAccess>(a.dtable + row * a.h + c, count, sum);
}

constexpr int kLongGroups = 8;                            // groups of channels of a block
constexpr int kLongWays = kScatterThreads / kLongGroups;  // parts of a segment's rows
constexpr int kLongChannels = kLongGroups * kGroup;

// Long segments: a block handles 64 channels (blockIdx.y) of every gridDim.x-th segment; a thread
// sums eight channels of every 32nd row, and these sums are added in order. 256 threads, 9 KiB of
// shared memory.
template <class S, Access kAccess>
__global__ void __launch_bounds__(kScatterThreads) LongSegmentsKernel(const ScatterRows<S> a) {
  __shared__ float shared[kLongWays][kLongChannels];
  __shared__ int32_t found[kScatterThreads];
  __shared__ int num_found;
  const int way = static_cast<int>(threadIdx.x) / kLongGroups;
  const int offset = static_cast<int>(threadIdx.x) % kLongGroups * kGroup;
  const int64_t first = int64_t{blockIdx.y} * kLongChannels, c = first + offset;
  const int count = static_cast<int>(max(int64_t{0}, min(a.h - c, int64_t{kGroup})));
  const int64_t span = int64_t{gridDim.x} * kScatterThreads;
  const int64_t segments = a.Segments();
  for (int64_t base = 0; base < segments; base += span) {
    __syncthreads();
    if (threadIdx.x == 0) num_found = 0;
    __syncthreads();
    const int64_t mine = base + int64_t{threadIdx.x} * gridDim.x + blockIdx.x;
    // The set of segments matters, not its order: each is summed independently.
    if (mine < segments && a.start[mine + 1] - a.start[mine] > kLongSegment) {
      found[atomicAdd(&num_found, 1)] = static_cast<int32_t>(mine);
    }
    __syncthreads();
    for (int f = 0; f < num_found; ++f) {
      const int32_t segment = found[f];
      const int64_t row = a.token[segment] - a.first_row;
      if (row < 0 || row >= a.v) continue;
      Float8 sum{};
      if (count > 0) {
        SumRows<kAccess>(
            a, c, count, a.start[segment] + way, a.start[segment + 1], kLongWays,
            [&](int32_t i) { return a.order[i]; }, &sum);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kGroup; ++k) shared[way][offset + k] = sum.v[k];
      __syncthreads();
      const int64_t column = first + threadIdx.x;
      if (threadIdx.x >= kLongChannels || column >= a.h) continue;
      float total = 0;
#pragma unroll
      for (int w = 0; w < kLongWays; ++w) total += shared[w][threadIdx.x];
      a.dtable[row * a.h + column] += total;
    }
  }
}

constexpr int kPositionGroups = 128;  // maximum groups of channels per block
constexpr int kPositionWays = 4;      // threads that share a batch
constexpr int kScan = 8;              // positions that a lane checks at once

// dposition[p] += all rows whose position is p, in ascending order of s; kPositionWays threads
// share a batch's rows, and their sums are added in order. One block per position and 1024 channels
// (blockIdx.y); each warp searches the positions itself. [kPositionWays, blockDim.x] threads,
// blockDim.x being groups of channels; 12 KiB of shared memory.
template <class S, Access kAccess>
__global__ void __launch_bounds__(kPositionGroups* kPositionWays)
    PositionKernel(const ScatterRows<S> a) {
  __shared__ Float8 shared[kPositionWays - 1][kPositionGroups];
  const int way = static_cast<int>(threadIdx.y), group = static_cast<int>(threadIdx.x);
  const int lane = group % kWarp;
  const auto position = static_cast<int32_t>(blockIdx.x);
  const int64_t c = (int64_t{blockIdx.y} * kPositionGroups + group) * kGroup;
  const int count = static_cast<int>(max(int64_t{0}, min(a.h - c, int64_t{kGroup})));
  const auto batch = static_cast<int32_t>(a.batch);
  Float8 sum{};
  bool any = false;
  for (int64_t at = 0; at < a.s; at += kWarp * kScan) {
    unsigned mine = 0;  // bit k: position at + 32 k + lane is this one
#pragma unroll
    for (int k = 0; k < kScan; ++k) {
      const int64_t i = at + k * kWarp + lane;
      mine |= i < a.s && a.positions[i] == position ? 1U << k : 0U;
    }
    if (!__any_sync(kAllLanes, mine != 0)) continue;
    any = true;
    for (int k = 0; k < kScan; ++k) {
      unsigned hits = __ballot_sync(kAllLanes, (mine >> k & 1) != 0);
      for (; hits != 0 && count > 0; hits &= hits - 1) {
        const int64_t row = (at + k * kWarp + __ffs(static_cast<int>(hits)) - 1) * batch;
        SumRows<kAccess>(
            a, c, count, way, batch, kPositionWays, [&](int32_t b) { return row + b; }, &sum);
      }
    }
  }
  if (way > 0) shared[way - 1][group] = sum;
  __syncthreads();
  if (way > 0 || !any || count == 0) return;
#pragma unroll
  for (int w = 0; w < kPositionWays - 1; ++w) {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) sum.v[k] += shared[w][group].v[k];
  }
  AddToTable<kAccess>(a.dposition + position * a.h + c, count, sum);
}

template <class S, Access kAccess>
void LaunchPositions(const cudaStream_t stream, const ScatterRows<S>& a, int64_t positions) {
  const int64_t groups = a.groups.divisor();
  const dim3 threads(
      static_cast<unsigned>(std::min<int64_t>(base::RoundUp(groups, kWarp), kPositionGroups)),
      kPositionWays);
  const dim3 grid(static_cast<unsigned>(positions),
                  static_cast<unsigned>(base::CeilDiv(groups, kPositionGroups)));
  PositionKernel<S, kAccess><<<grid, threads, 0, stream>>>(a);
  CheckLaunch("ScatterGrad");
}

template <class S, Access kAccess>
void Scatter(const Stream& stream, const EmbeddingScatterArgs& a, const DeviceLimits& limits) {
  const int64_t h = a.dy.shape[1], groups = base::CeilDiv(h, int64_t{kGroup});
  const ScatterRows<S> raw{.dy = a.dy.Data<S>(),
                           .order = a.order.Data<int32_t>(),
                           .token = a.segment_token.Data<int32_t>(),
                           .start = a.segment_start.Data<int32_t>(),
                           .count = DataOrNull<int32_t>(a.count),
                           .num_segments = a.num_segments,
                           .h = h,
                           .v = a.dtable.shape[0],
                           .first_row = a.first_row,
                           .groups = Divider(groups),
                           .dtable = a.dtable.Data<float>(),
                           .positions = DataOrNull<int32_t>(a.positions),
                           .s = a.dposition ? a.positions.NumElements() : 0,
                           .batch = a.batch,
                           .dposition = DataOrNull<float>(a.dposition)};
  const cudaStream_t cuda_stream = Raw(stream);
  if (a.num_segments > 0) {
    const dim3 grid(static_cast<unsigned>(limits.num_sms),
                    static_cast<unsigned>(base::CeilDiv(h, kLongChannels)));
    LongSegmentsKernel<S, kAccess><<<grid, kScatterThreads, 0, cuda_stream>>>(raw);
    CheckLaunch("ScatterGrad");
    const int64_t threads = a.num_segments * groups;
    CheckCountable(threads + kScatterThreads);
    ShortSegmentsKernel<S, kAccess>
        <<<static_cast<unsigned>(base::CeilDiv(threads, kScatterThreads)), kScatterThreads, 0,
           cuda_stream>>>(raw);
    CheckLaunch("ScatterGrad");
  }
  if (a.dposition) LaunchPositions<S, kAccess>(cuda_stream, raw, a.dposition.shape[0]);
}

}  // namespace

void CudaEmbedding::Gather(Stream& stream, const EmbeddingGatherArgs& a) const {
  const int64_t h = a.table.shape[1];
  CHECK(a.table.dtype == a.out.dtype && a.out.shape[1] == h &&
        a.out.shape[0] == a.tokens.NumElements());
  ForGpuType(a.out.dtype, "Gather", [&](auto zero) {
    using S = decltype(zero);
    const GatherOp<S> op{.tokens = a.tokens.Data<int32_t>(),
                         .table = a.table.Data<S>(),
                         .v = a.table.shape[0],
                         .h = h,
                         .first_row = a.first_row,
                         .out = a.out.Data<S>()};
    LaunchElementwise(stream, op, a.out.NumElements(),
                      h % kGroup == 0 && IsAligned16(a.table.data) && IsAligned16(a.out.data),
                      "Gather");
  });
}

void CudaEmbedding::ScatterGrad(Stream& stream, const EmbeddingScatterArgs& a) const {
  const int64_t h = a.dy.shape[1];
  CHECK_EQ(a.dtable.shape[1], h);
  CHECK_EQ(a.order.NumElements(), a.dy.shape[0]);
  if (a.dposition) CHECK(a.positions.NumElements() * a.batch == a.dy.shape[0]);
  const bool aligned = h % kGroup == 0 && IsAligned16(a.dy.data) && IsAligned16(a.dtable.data) &&
                       IsAligned16(a.dposition.data);
  ForGpuType(a.dy.dtype, "ScatterGrad", [&](auto zero) {
    using S = decltype(zero);
    if (aligned) {
      Scatter<S, Access::kVector>(stream, a, limits_);
    } else {
      Scatter<S, Access::kElements>(stream, a, limits_);
    }
  });
}

}  // namespace mt::kernels::cuda
