// The norm of q and k heads with the rotation behind it, and its gradient: a team of lanes has a
// head, whose channels stay in registers between the sum of squares and the turn; where channels
// are no multiple of eight a warp has one. Legend: as in kernels/ops/rope.h.
#include <bit>

#include "kernels/cuda/qk_norm.cuh"
#include "kernels/cuda/rope_rows.cuh"

namespace mt::kernels::cuda {
namespace {

constexpr int kThreads = kRopeThreads;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPairsPerLane = 4;
constexpr int64_t kLargestHead = kLargestNormedHead;
static_assert(kLargestHead == 2 * kPairsPerLane * kWarp);

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

}  // namespace

template <class S>
void LaunchNorm(const Stream& stream, const RotateRows<S>& a) {
  if (a.rows == 0) return;
  const int lanes = TeamLanes(a);
  const int64_t teams = lanes > 0 ? kThreads / lanes : kWarps;
  const auto blocks = static_cast<unsigned>(base::CeilDiv(a.rows * (a.a + a.g), teams));
  if (lanes > 0) {
    TeamNormKernel<S><<<blocks, kThreads, 0, Raw(stream)>>>(a, lanes);
  } else {
    NormKernel<S><<<blocks, kThreads, 0, Raw(stream)>>>(a);
  }
  CheckLaunch("Rotate");
}

template <class S>
void LaunchNormGrad(const Stream& stream, const RotateRows<S>& a, int64_t blocks) {
  const int lanes = TeamLanes(a);
  const auto grid = static_cast<unsigned>(blocks);
  if (lanes > 0) {
    TeamNormGradKernel<S><<<grid, kThreads, 0, Raw(stream)>>>(a, lanes);
  } else {
    NormGradKernel<S><<<grid, kThreads, 0, Raw(stream)>>>(a);
  }
  CheckLaunch("RotateGrad");
}

template void LaunchNorm<float>(const Stream&, const RotateRows<float>&);
template void LaunchNorm<Bf16>(const Stream&, const RotateRows<Bf16>&);
template void LaunchNorm<F16>(const Stream&, const RotateRows<F16>&);
template void LaunchNormGrad<float>(const Stream&, const RotateRows<float>&, int64_t);
template void LaunchNormGrad<Bf16>(const Stream&, const RotateRows<Bf16>&, int64_t);
template void LaunchNormGrad<F16>(const Stream&, const RotateRows<F16>&, int64_t);

}  // namespace mt::kernels::cuda
