// Gather, and its gradient by segments of equal tokens: whoever owns a row of the table adds all of
// its rows in order, so no atomics and the same bits in every run.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

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
  float* dtable;

  __device__ __forceinline__ int64_t Segments() const {
    return count == nullptr ? num_segments : int64_t{*count};
  }
};

constexpr int kScatterThreads = 256;
constexpr int kLongSegment = 32;  // rows; longer ones are shared out over a block

// sum += rows order[begin], order[begin + step], ... of dy, channels [c, c + 8).
template <Access kAccess, class S>
__device__ __forceinline__ void SumRows(const ScatterRows<S>& a, int64_t c, int count,
                                        int32_t begin, int32_t end, int32_t step, Float8* sum) {
#pragma unroll 4
  for (int32_t i = begin; i < end; i += step) {
    const Float8 x = Load<kAccess>(a.dy + a.order[i] * a.h + c, count);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) sum->v[k] += x.v[k];
  }
}

template <Access kAccess>
__device__ __forceinline__ void AddToTable(float* to, int count, const Float8& sum) {
  Float8 x = Load<kAccess>(to, count);
#pragma unroll
  for (int k = 0; k < kGroup; ++k) x.v[k] += sum.v[k];
  Store<kAccess>(x, to, count);
}

// Short segments: a thread per segment and eight channels. 256 threads.
template <class S, Access kAccess>
__global__ void __launch_bounds__(kScatterThreads) ShortSegmentsKernel(const ScatterRows<S> a) {
  const int64_t groups = (a.h + kGroup - 1) / kGroup;
  const int64_t index = int64_t{blockIdx.x} * kScatterThreads + threadIdx.x;
  const int64_t segment = index / groups, c = index % groups * kGroup;
  if (segment >= a.Segments()) return;
  const int32_t begin = a.start[segment], end = a.start[segment + 1];
  const int64_t row = a.token[segment] - a.first_row;
  if (row < 0 || row >= a.v || end - begin > kLongSegment) return;
  const int count = static_cast<int>(min(a.h - c, int64_t{kGroup}));
  Float8 sum{};
  SumRows<kAccess>(a, c, count, begin, end, 1, &sum);
  AddToTable<kAccess>(a.dtable + row * a.h + c, count, sum);
}

// Long segments: a block takes 256 channels (blockIdx.y) of every gridDim.x-th segment; each of its
// eight warps sums every eighth row, and the warps are added in order. 256 threads, 9 KiB shared.
template <class S, Access kAccess>
__global__ void __launch_bounds__(kScatterThreads) LongSegmentsKernel(const ScatterRows<S> a) {
  constexpr int kWarps = kScatterThreads / kWarp;
  __shared__ float shared[kWarps][kWarp * kGroup];
  __shared__ int32_t found[kScatterThreads];
  __shared__ int num_found;
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t c = (int64_t{blockIdx.y} * kWarp + lane) * kGroup;
  const int count = static_cast<int>(max(int64_t{0}, min(a.h - c, int64_t{kGroup})));
  const int64_t span = int64_t{gridDim.x} * kScatterThreads;
  const int64_t segments = a.Segments();
  for (int64_t base = 0; base < segments; base += span) {
    __syncthreads();
    if (threadIdx.x == 0) num_found = 0;
    __syncthreads();
    const int64_t mine = base + int64_t{threadIdx.x} * gridDim.x + blockIdx.x;
    // Which segments there are matters, not in which order: each is summed by itself.
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
        SumRows<kAccess>(a, c, count, a.start[segment] + warp, a.start[segment + 1], kWarps, &sum);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kGroup; ++k) shared[warp][lane * kGroup + k] = sum.v[k];
      __syncthreads();
      const int64_t column = int64_t{blockIdx.y} * kWarp * kGroup + threadIdx.x;
      if (column >= a.h) continue;
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += shared[w][threadIdx.x];
      a.dtable[row * a.h + column] += total;
    }
  }
}

// dposition[p] += all rows whose position is p, in rising order. A block per position; every warp
// looks through the positions itself. 256 threads.
template <class S, Access kAccess>
__global__ void __launch_bounds__(kScatterThreads)
    PositionKernel(const S* __restrict__ dy, const int32_t* __restrict__ positions, int64_t s,
                   int64_t batch, int64_t h, float* __restrict__ dposition) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto position = static_cast<int32_t>(blockIdx.x);
  for (int64_t first = 0; first < h; first += int64_t{kScatterThreads} * kGroup) {
    const int64_t c = first + int64_t{threadIdx.x} * kGroup;
    const int count = static_cast<int>(max(int64_t{0}, min(h - c, int64_t{kGroup})));
    Float8 sum{};
    bool any = false;
    for (int64_t at = 0; at < s; at += kWarp) {
      const bool hit = at + lane < s && positions[at + lane] == position;
      unsigned hits = __ballot_sync(kAllLanes, hit);
      any = any || hits != 0;
      for (; hits != 0; hits &= hits - 1) {
        const int64_t row = (at + __ffs(static_cast<int>(hits)) - 1) * batch;
        if (count == 0) continue;
#pragma unroll 4
        for (int64_t b = 0; b < batch; ++b) {
          const Float8 x = Load<kAccess>(dy + (row + b) * h + c, count);
#pragma unroll
          for (int k = 0; k < kGroup; ++k) sum.v[k] += x.v[k];
        }
      }
    }
    if (any && count > 0) AddToTable<kAccess>(dposition + position * h + c, count, sum);
  }
}

template <class S, Access kAccess>
void Scatter(const Stream& stream, const EmbeddingScatterArgs& a, const DeviceLimits& limits) {
  const int64_t h = a.dy.shape[1];
  const ScatterRows<S> raw{.dy = a.dy.Data<S>(),
                           .order = a.order.Data<int32_t>(),
                           .token = a.segment_token.Data<int32_t>(),
                           .start = a.segment_start.Data<int32_t>(),
                           .count = a.count ? a.count.Data<int32_t>() : nullptr,
                           .num_segments = a.num_segments,
                           .h = h,
                           .v = a.dtable.shape[0],
                           .first_row = a.first_row,
                           .dtable = a.dtable.Data<float>()};
  if (a.num_segments > 0) {
    const int64_t threads = a.num_segments * base::CeilDiv(h, kGroup);
    ShortSegmentsKernel<S, kAccess>
        <<<static_cast<unsigned>(base::CeilDiv(threads, kScatterThreads)), kScatterThreads, 0,
           Raw(stream)>>>(raw);
    CheckLaunch("ScatterGrad");
    const dim3 grid(static_cast<unsigned>(2 * limits.num_sms),
                    static_cast<unsigned>(base::CeilDiv(h, kWarp * kGroup)));
    LongSegmentsKernel<S, kAccess><<<grid, kScatterThreads, 0, Raw(stream)>>>(raw);
    CheckLaunch("ScatterGrad");
  }
  if (!a.dposition) return;
  PositionKernel<S, kAccess>
      <<<static_cast<unsigned>(a.dposition.shape[0]), kScatterThreads, 0, Raw(stream)>>>(
          raw.dy, a.positions.Data<int32_t>(), a.positions.NumElements(), a.batch, h,
          a.dposition.Data<float>());
  CheckLaunch("ScatterGrad");
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
