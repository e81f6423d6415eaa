// Rotation of q and k in place on the packed projection, the norm of their heads before it, and the
// gradients. Without norms a thread turns eight pairs; with norms a warp has a head, whose pairs
// stay in registers between the sum of squares and the turn. Legend: as in kernels/ops/rope.h.
#include <bit>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/qk_norm.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.h"

namespace mt::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPairsPerLane = 4;
constexpr int64_t kLargestHead = int64_t{2} * kPairsPerLane * kWarp;

template <class S>
struct RotateRows {
  int64_t rows, batch, a, g, d, r;  // r = 0 without rotation
  S* qkv;                           // [rows, (a + 2g) d]: values, or their gradient
  const float* table;
  const int32_t* positions;
  const S *q_gain, *k_gain;
  float plus;
  float eps;
  S* input;     // [rows, (a + g) d]
  float* rstd;  // [rows, a + g]
  float* sums;  // [grid, 2, d]
};

struct Pair {
  float first, second;
};

__device__ __forceinline__ Pair TurnPair(const Pair& x, float cos, float sin) {
  return {x.first * cos - x.second * sin, x.second * cos + x.first * sin};
}

// A thread turns pairs [p, p + 8) of one head of one row. 256 threads.
template <class S, bool kBack, Access kAccess>
__global__ void __launch_bounds__(kThreads) TurnKernel(const RotateRows<S> a) {
  const int64_t half = a.r / 2, groups = (half + kGroup - 1) / kGroup, heads = a.a + a.g;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= a.rows * heads * groups) return;
  const int64_t p = index % groups * kGroup, head = index / groups % heads;
  const int64_t row = index / groups / heads;
  const int count = static_cast<int>(min(half - p, int64_t{kGroup}));
  S* const first = a.qkv + row * (a.a + 2 * a.g) * a.d + head * a.d + p;
  const float* const cos = a.table + a.positions[row / a.batch] * a.r + p;
  Float8 x = Load<kAccess>(first, count), y = Load<kAccess>(first + half, count);
  const Float8 c = Load<kAccess>(cos, count), s = Load<kAccess>(cos + half, count);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const Pair turned = TurnPair({x.v[i], y.v[i]}, c.v[i], kBack ? -s.v[i] : s.v[i]);
    x.v[i] = turned.first;
    y.v[i] = turned.second;
  }
  Store<kAccess>(x, first, count);
  Store<kAccess>(y, first + half, count);
}

// A warp's view of one head: lane and turn k have pair p = lane + 32 k, channels first(p),
// second(p). Channels that are not rotated make pairs among themselves; `exists` is false past the
// end.
struct HeadPairs {
  int d, half;  // half of the rotated channels
  __device__ int Rest() const { return d - 2 * half; }
  __device__ int Count() const { return half + (Rest() + 1) / 2; }
  __device__ bool Rotated(int p) const { return p < half; }
  __device__ int First(int p) const { return p < half ? p : 2 * half + 2 * (p - half); }
  __device__ int Second(int p) const { return p < half ? p + half : First(p) + 1; }
  __device__ bool HasFirst(int p) const { return p < Count(); }
  __device__ bool HasSecond(int p) const { return p < Count() && Second(p) < d; }
};

template <class S>
__device__ __forceinline__ Pair LoadPair(const HeadPairs& z, const S* from, int p) {
  return {z.HasFirst(p) ? Widen(from[z.First(p)]) : 0.0F,
          z.HasSecond(p) ? Widen(from[z.Second(p)]) : 0.0F};
}

template <class S>
__device__ __forceinline__ void StorePair(const HeadPairs& z, const Pair& x, int p, S* to) {
  if (z.HasFirst(p)) to[z.First(p)] = Narrow<S>(x.first);
  if (z.HasSecond(p)) to[z.Second(p)] = Narrow<S>(x.second);
}

// cos and sin of the row for a lane's pairs; (1, 0) where nothing turns.
template <class S>
__device__ __forceinline__ Pair TurnOf(const RotateRows<S>& a, const HeadPairs& z, int64_t row,
                                       int p) {
  if (!z.Rotated(p)) return {1.0F, 0.0F};
  const float* const cos = a.table + a.positions[row / a.batch] * a.r + p;
  return {cos[0], cos[z.half]};
}

// Normalises and turns: a warp per head of a row. 256 threads.
template <class S>
__global__ void __launch_bounds__(kThreads) NormKernel(const RotateRows<S> a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const HeadPairs z{static_cast<int>(a.d), static_cast<int>(a.r / 2)};
  const int64_t heads = a.a + a.g;
  const int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;  // row * heads + head
  if (at >= a.rows * heads) return;
  const int64_t row = at / heads, head_idx = at % heads;
  S* const head = a.qkv + row * (a.a + 2 * a.g) * a.d + head_idx * a.d;
  const S* gain = head_idx < a.a ? a.q_gain : a.k_gain;
  Pair x[kPairsPerLane];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kPairsPerLane; ++k) {
    x[k] = LoadPair(z, head, lane + k * kWarp);
    StorePair(z, x[k], lane + k * kWarp, a.input + at * a.d);
    squares += x[k].first * x[k].first + x[k].second * x[k].second;
  }
  const float rstd = 1.0F / sqrtf(WarpSum(squares) / static_cast<float>(a.d) + a.eps);
  if (lane == 0) a.rstd[at] = rstd;
#pragma unroll
  for (int k = 0; k < kPairsPerLane; ++k) {
    const int p = lane + k * kWarp;
    const Pair g = LoadPair(z, gain, p), turn = TurnOf(a, z, row, p);
    const Pair normed{x[k].first * rstd * (g.first + a.plus),
                      x[k].second * rstd * (g.second + a.plus)};
    StorePair(z, TurnPair(normed, turn.first, turn.second), p, head);
  }
}

// One head's gradient: back through the rotation, then through the norm, dx = rstd (g - xhat
// mean(g xhat)) with g = dy * gain. Adds dy * xhat to `sums`.
template <class S>
__device__ __forceinline__ void HeadGrad(const RotateRows<S>& a, const HeadPairs& z, int64_t at,
                                         int lane, const S* gain, Pair (&sums)[kPairsPerLane]) {
  const int64_t heads = a.a + a.g, row = at / heads;
  S* const head = a.qkv + row * (a.a + 2 * a.g) * a.d + at % heads * a.d;
  const float rstd = a.rstd[at];
  Pair g[kPairsPerLane], x[kPairsPerLane];
  float dot = 0;
#pragma unroll
  for (int k = 0; k < kPairsPerLane; ++k) {
    const int p = lane + k * kWarp;
    const Pair turn = TurnOf(a, z, row, p);
    const Pair dy = TurnPair(LoadPair(z, static_cast<const S*>(head), p), turn.first, -turn.second);
    const Pair weight = LoadPair(z, gain, p);
    x[k] = LoadPair(z, static_cast<const S*>(a.input) + at * a.d, p);
    sums[k].first += dy.first * (x[k].first * rstd);
    sums[k].second += dy.second * (x[k].second * rstd);
    g[k] = {dy.first * (weight.first + a.plus), dy.second * (weight.second + a.plus)};
    dot += g[k].first * x[k].first + g[k].second * x[k].second;
  }
  const float slope = rstd * rstd * WarpSum(dot) / static_cast<float>(a.d);
#pragma unroll
  for (int k = 0; k < kPairsPerLane; ++k) {
    const Pair dx{rstd * (g[k].first - x[k].first * slope),
                  rstd * (g[k].second - x[k].second * slope)};
    StorePair(z, dx, lane + k * kWarp, head);
  }
}

// As NormKernel, eight channels per lane. 256 threads.
template <class S>
__global__ void __launch_bounds__(kThreads) TeamNormKernel(const RotateRows<S> a, int lanes) {
  const TeamLane lane(lanes, static_cast<int>(a.d), static_cast<int>(a.r));
  const int64_t heads = a.a + a.g;
  const int64_t at = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  const bool exists = lane.exists && at < a.rows * heads;
  const int64_t row = at / heads, head_idx = at % heads;
  const int c = lane.group * kGroup;
  S* const head = a.qkv + row * (a.a + 2 * a.g) * a.d + head_idx * a.d + c;
  Stored8<S> stored{};
  if (exists) stored = LoadStored<Access::kVector>(static_cast<const S*>(head), kGroup);
  Float8 x = Widen(stored);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) squares += x.v[i] * x.v[i];
  const float rstd = 1.0F / sqrtf(TeamSum(squares, lanes) / static_cast<float>(a.d) + a.eps);
  if (exists) {
    StoreStored<Access::kVector>(stored, a.input + at * a.d + c, kGroup);
    if (lane.group == 0) a.rstd[at] = rstd;
    const Float8 gain = Load<Access::kVector>((head_idx < a.a ? a.q_gain : a.k_gain) + c, kGroup);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] *= rstd * (gain.v[i] + a.plus);
  }
  if (a.r > 0) {
    const int64_t position = exists ? a.positions[row / a.batch] : 0;
    TurnTeam(lane, a.table + position * a.r, static_cast<int>(a.r / 2), 1.0F, &x);
  }
  if (exists) Store<Access::kVector>(x, head, kGroup);
}

// The block's sums [2, d], made of kThreads / lanes teams' in order, go out to a.sums.
template <class S, class Add>
__device__ __forceinline__ void JoinSums(const RotateRows<S>& a, int teams, int team,
                                         const Add& add) {
  __shared__ float joined[2 * kLargestHead];
  for (int i = static_cast<int>(threadIdx.x); i < 2 * a.d; i += kThreads) joined[i] = 0;
  __syncthreads();
  for (int t = 0; t < teams; ++t) {
    if (t == team) add(joined);
    __syncthreads();
  }
  for (int64_t i = threadIdx.x; i < 2 * a.d; i += kThreads) {
    a.sums[int64_t{blockIdx.x} * 2 * a.d + i] = joined[i];
  }
}

// As NormGradKernel, eight channels per lane: a block's teams take heads of every gridDim.x-th
// stretch of rows. 256 threads, 2 KiB shared.
template <class S>
__global__ void __launch_bounds__(kThreads) TeamNormGradKernel(const RotateRows<S> a, int lanes) {
  const TeamLane lane(lanes, static_cast<int>(a.d), static_cast<int>(a.r));
  const int teams = kThreads / lanes, team = static_cast<int>(threadIdx.x) / lanes;
  const int64_t heads = a.a + a.g, all = a.rows * heads;
  const int c = lane.group * kGroup;
  Float8 gains[2]{}, sums[2]{};
  if (lane.exists) {
    gains[0] = Load<Access::kVector>(a.q_gain + c, kGroup);
    gains[1] = Load<Access::kVector>(a.k_gain + c, kGroup);
  }
  for (int64_t first = int64_t{blockIdx.x} * teams; first < all;
       first += int64_t{gridDim.x} * teams) {
    const int64_t at = first + team;
    const bool exists = lane.exists && at < all;
    const int64_t row = at / heads, head_idx = at % heads;
    const bool query = head_idx < a.a;
    S* const head = a.qkv + row * (a.a + 2 * a.g) * a.d + head_idx * a.d + c;
    Float8 dy{}, x{};
    float rstd = 0;
    if (exists) {
      dy = Load<Access::kVector>(static_cast<const S*>(head), kGroup);
      x = Load<Access::kVector>(static_cast<const S*>(a.input) + at * a.d + c, kGroup);
      rstd = a.rstd[at];
    }
    if (a.r > 0) {
      const int64_t position = exists ? a.positions[row / a.batch] : 0;
      TurnTeam(lane, a.table + position * a.r, static_cast<int>(a.r / 2), -1.0F, &dy);
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float share = dy.v[i] * (x.v[i] * rstd);
      sums[0].v[i] += query ? share : 0.0F;
      sums[1].v[i] += query ? 0.0F : share;
      dy.v[i] *= (query ? gains[0].v[i] : gains[1].v[i]) + a.plus;
      dot += dy.v[i] * x.v[i];
    }
    const float slope = rstd * rstd * TeamSum(dot, lanes) / static_cast<float>(a.d);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) dy.v[i] = rstd * (dy.v[i] - x.v[i] * slope);
    if (exists) Store<Access::kVector>(dy, head, kGroup);
  }
  JoinSums(a, teams, team, [&](float* joined) {
    if (!lane.exists) return;
    for (int which = 0; which < 2; ++which) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) joined[which * a.d + c + i] += sums[which].v[i];
    }
  });
}

// A block takes every gridDim.x-th row; a warp every eighth head of it. Gain sums stay in
// registers; warps are joined in order at the end. 256 threads, 2 KiB shared.
template <class S>
__global__ void __launch_bounds__(kThreads) NormGradKernel(const RotateRows<S> a) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const HeadPairs z{static_cast<int>(a.d), static_cast<int>(a.r / 2)};
  const int64_t heads = a.a + a.g;
  Pair q_sums[kPairsPerLane] = {}, k_sums[kPairsPerLane] = {};
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    for (int64_t head = warp; head < heads; head += kWarps) {
      if (head < a.a) {
        HeadGrad(a, z, row * heads + head, lane, a.q_gain, q_sums);
      } else {
        HeadGrad(a, z, row * heads + head, lane, a.k_gain, k_sums);
      }
    }
  }
  JoinSums(a, kWarps, warp, [&](float* joined) {
#pragma unroll
    for (int k = 0; k < kPairsPerLane; ++k) {
      const int p = lane + k * kWarp;
      if (z.HasFirst(p)) joined[z.First(p)] += q_sums[k].first;
      if (z.HasSecond(p)) joined[z.Second(p)] += q_sums[k].second;
      if (z.HasFirst(p)) joined[a.d + z.First(p)] += k_sums[k].first;
      if (z.HasSecond(p)) joined[a.d + z.Second(p)] += k_sums[k].second;
    }
  });
}

void CheckShape(const RotateShape& z, const Tensor& qkv) {
  CHECK_EQ(qkv.shape[1], (z.a + 2 * z.g) * z.d);
  if (z.table) {
    CHECK(z.table.shape[1] % 2 == 0 && z.table.shape[1] <= z.d)
        << z.table.shape[1] << " rotated channels of " << z.d;
    CHECK_EQ(z.positions.NumElements() * z.batch, qkv.shape[0]);
  }
  CHECK_EQ(static_cast<bool>(z.q_gain), static_cast<bool>(z.k_gain));
  if (z.q_gain) {
    CHECK(z.q_gain.NumElements() == z.d && z.k_gain.NumElements() == z.d);
    CHECK_LE(z.d, kLargestHead);
  }
}

void CheckKept(const RotateShape& z, const Tensor& input, const Tensor& rstd, int64_t rows) {
  CHECK_EQ(input.NumElements(), rows * (z.a + z.g) * z.d);
  CHECK_EQ(rstd.NumElements(), rows * (z.a + z.g));
}

template <class S>
RotateRows<S> Raw(const RotateShape& z, const Tensor& qkv) {
  return {.rows = qkv.shape[0],
          .batch = z.batch,
          .a = z.a,
          .g = z.g,
          .d = z.d,
          .r = z.table ? z.table.shape[1] : 0,
          .qkv = qkv.Data<S>(),
          .table = DataOrNull<float>(z.table),
          .positions = DataOrNull<int32_t>(z.positions),
          .q_gain = DataOrNull<S>(z.q_gain),
          .k_gain = DataOrNull<S>(z.k_gain),
          .plus = z.one_plus ? 1.0F : 0.0F};
}

template <class S, bool kBack>
void Turn(const Stream& stream, const RotateRows<S>& a) {
  const int64_t half = a.r / 2;
  if (half == 0 || a.rows == 0) return;
  const bool aligned =
      half % kGroup == 0 && a.d % kGroup == 0 && IsAligned16(a.qkv) && IsAligned16(a.table);
  const int64_t threads = a.rows * (a.a + a.g) * base::CeilDiv(half, kGroup);
  const auto kernel =
      aligned ? TurnKernel<S, kBack, Access::kVector> : TurnKernel<S, kBack, Access::kElements>;
  kernel<<<static_cast<unsigned>(base::CeilDiv(threads, kThreads)), kThreads, 0,
           cuda::Raw(stream)>>>(a);
  CheckLaunch("Rotate");
}

// Lanes of a team for heads of whole vectors, at 16-byte borders; 0 where a warp takes a head by
// elements.
template <class S>
int TeamLanes(const RotateRows<S>& a) {
  const bool whole = a.d % kGroup == 0 && a.r / 2 % kGroup == 0;
  if (!whole || !IsAligned16(a.qkv) || !IsAligned16(a.input) || !IsAligned16(a.table) ||
      !IsAligned16(a.q_gain) || !IsAligned16(a.k_gain)) {
    return 0;
  }
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(a.d / kGroup)));
}

int64_t GradBlocks(int64_t rows, const DeviceLimits& limits) {
  return std::clamp<int64_t>(rows, 1, 4 * limits.num_sms);
}

}  // namespace

void CudaRope::Rotate(Stream& stream, const RotateArgs& a) const {
  const RotateShape& z = a.shape;
  const int64_t rows = a.qkv.shape[0];
  CheckShape(z, a.qkv);
  if (z.q_gain) CheckKept(z, a.input, a.rstd, rows);
  ForGpuType(a.qkv.dtype, "Rotate", [&](auto zero) {
    using S = decltype(zero);
    RotateRows<S> raw = Raw<S>(z, a.qkv);
    if (!z.q_gain) return Turn<S, false>(stream, raw);
    if (rows == 0) return;
    raw.eps = static_cast<float>(a.eps);
    raw.input = a.input.Data<S>();
    raw.rstd = a.rstd.Data<float>();
    const int lanes = TeamLanes(raw);
    const int64_t teams = lanes > 0 ? kThreads / lanes : kWarps;
    const auto blocks = static_cast<unsigned>(base::CeilDiv(rows * (z.a + z.g), teams));
    if (lanes > 0) {
      TeamNormKernel<S><<<blocks, kThreads, 0, cuda::Raw(stream)>>>(raw, lanes);
    } else {
      NormKernel<S><<<blocks, kThreads, 0, cuda::Raw(stream)>>>(raw);
    }
    CheckLaunch("Rotate");
  });
}

int64_t CudaRope::WorkspaceBytes(const RotateGradArgs& a) const {
  if (!a.shape.q_gain) return 0;
  return GradBlocks(a.dqkv.shape[0], limits_) * 2 * a.shape.d * int64_t{sizeof(float)};
}

void CudaRope::RotateGrad(Stream& stream, const RotateGradArgs& a) const {
  const RotateShape& z = a.shape;
  const int64_t rows = a.dqkv.shape[0];
  CheckShape(z, a.dqkv);
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  if (z.q_gain) {
    CheckKept(z, a.input, a.rstd, rows);
    CHECK(a.dq_gain.NumElements() == z.d && a.dk_gain.NumElements() == z.d);
  }
  ForGpuType(a.dqkv.dtype, "RotateGrad", [&](auto zero) {
    using S = decltype(zero);
    RotateRows<S> raw = Raw<S>(z, a.dqkv);
    if (!z.q_gain) return Turn<S, true>(stream, raw);
    raw.input = a.input.Data<S>();
    raw.rstd = a.rstd.Data<float>();
    raw.sums = static_cast<float*>(a.workspace.data);
    const int64_t blocks = GradBlocks(rows, limits_);
    const int lanes = TeamLanes(raw);
    if (lanes > 0) {
      TeamNormGradKernel<S>
          <<<static_cast<unsigned>(blocks), kThreads, 0, cuda::Raw(stream)>>>(raw, lanes);
    } else {
      NormGradKernel<S><<<static_cast<unsigned>(blocks), kThreads, 0, cuda::Raw(stream)>>>(raw);
    }
    CheckLaunch("RotateGrad");
    const ColumnPartials all{.data = raw.sums, .blocks = blocks, .stride = 2 * z.d};
    CombineColumns(stream, all, z.d, a.mode, {a.dq_gain, a.dk_gain});
  });
}

}  // namespace mt::kernels::cuda
