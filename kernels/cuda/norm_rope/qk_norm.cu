// QK norm followed by the rotation, and its gradient: a team of lanes handles a head, whose
// channels stay in registers between the sum of squares and the rotation; a warp handles heads
// whose channels are no multiple of eight.
// Legend: as in kernels/ops/rope.h.
#include <type_traits>

#include "kernels/cuda/norm_rope/qk_norm.cuh"
#include "kernels/cuda/norm_rope/rope_rows.cuh"

namespace mt::kernels::cuda {
namespace {

constexpr int kThreads = kRopeThreads;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPairsPerLane = 4;
constexpr int64_t kLargestHead = kLargestNormedHead;
static_assert(kLargestHead == 2 * kPairsPerLane * kWarp);

// A warp's view of one head: in iteration k a lane has pair p = lane + 32 k, channels first(p) and
// second(p). Channels that are not rotated form pairs among themselves; `exists` is false past the
// end.
struct HeadPairs {
  int d, half;  // half is half of the rotated channels
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

// Cosine and sine of the row for a lane's pairs; (1, 0) for channels that are not rotated.
template <class S>
__device__ __forceinline__ Pair TurnOf(const RotateRows<S>& a, const HeadPairs& z, int64_t row,
                                       int p) {
  if (!z.Rotated(p)) return {1.0F, 0.0F};
  const float* const cos =
      a.table + a.positions[a.rows_per_position.Quotient(static_cast<uint32_t>(row))] * a.r + p;
  return {cos[0], cos[z.half]};
}

// Normalises and rotates: one warp per head of a row. 256 threads.
template <class S>
__global__ void __launch_bounds__(kThreads) NormKernel(const RotateRows<S> a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const HeadPairs z{static_cast<int>(a.d), static_cast<int>(a.r / 2)};
  const int64_t heads = a.a + a.g;
  const int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;  // row * heads + head
  if (at >= a.rows * heads) return;
  uint32_t head_idx;
  const int64_t row = a.heads.Quotient(static_cast<uint32_t>(at), &head_idx);
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
  const float rstd = 1.0F / sqrtf(WarpSum(squares) / a.channels + a.eps);
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

// The gradient of one head: back through the rotation, then through the norm, dx = rstd (g - xhat
// mean(g xhat)) with g = dy * gain. Adds dy * xhat to `sums`.
template <class S>
__device__ __forceinline__ void HeadGrad(const RotateRows<S>& a, const HeadPairs& z, int64_t at,
                                         int lane, const S* gain, Pair (&sums)[kPairsPerLane]) {
  uint32_t head_idx;
  const int64_t row = a.heads.Quotient(static_cast<uint32_t>(at), &head_idx);
  S* const head = a.qkv + row * (a.a + 2 * a.g) * a.d + head_idx * a.d;
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
  const float slope = rstd * rstd * WarpSum(dot) / a.channels;
#pragma unroll
  for (int k = 0; k < kPairsPerLane; ++k) {
    const Pair dx{rstd * (g[k].first - x[k].first * slope),
                  rstd * (g[k].second - x[k].second * slope)};
    StorePair(z, dx, lane + k * kWarp, head);
  }
}

// A lane's part of one head of a row.
template <class S>
struct TeamHead {
  int64_t at;  // row * heads + head
  bool exists, query;
  S* data;  // the lane's channels
  int32_t position;
  Stored8<S> values;  // at `data`
  Stored8<S> input;   // the norm's input, for the gradient
  float rstd;
};

// Issues all loads that a lane needs of head `at`.
template <class S, int kLanes, bool kGradient>
__device__ __forceinline__ TeamHead<S> LoadHead(const RotateRows<S>& a,
                                                const TeamLane<kLanes>& lane, int64_t at) {
  TeamHead<S> head{.at = at, .exists = lane.exists && at < a.rows * a.heads.divisor()};
  if (!head.exists) return head;
  uint32_t head_idx;
  const uint32_t row = a.heads.Quotient(static_cast<uint32_t>(at), &head_idx);
  const int c = lane.group * kGroup;
  head.query = head_idx < a.a;
  head.data = a.qkv + row * ((a.a + 2 * a.g) * a.d) + head_idx * a.d + c;
  if (a.r > 0) head.position = a.positions[a.rows_per_position.Quotient(row)];
  head.values = LoadStored<Access::kVector>(static_cast<const S*>(head.data), kGroup);
  if constexpr (kGradient) {
    head.input = LoadStored<Access::kVector>(static_cast<const S*>(a.input) + at * a.d + c, kGroup);
    head.rstd = a.rstd[at];
  }
  return head;
}

// Like NormKernel, with eight channels per lane. 256 threads.
template <class S, int kLanes>
__global__ void __launch_bounds__(kThreads) TeamNormKernel(const RotateRows<S> a) {
  const TeamLane<kLanes> lane(static_cast<int>(a.d), static_cast<int>(a.r));
  const TeamHead<S> head =
      LoadHead<S, kLanes, false>(a, lane, (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes);
  Angles angles{};
  if (a.r > 0) {
    angles = LoadAngles(lane, a.table + int64_t{head.position} * a.r, static_cast<int>(a.r / 2));
  }
  Float8 x = Widen(head.values);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) squares += x.v[i] * x.v[i];
  const float rstd = 1.0F / sqrtf(TeamSum<kLanes>(squares) / a.channels + a.eps);
  if (head.exists) {
    const int c = lane.group * kGroup;
    StoreStored<Access::kVector>(head.values, a.input + head.at * a.d + c, kGroup);
    if (lane.group == 0) a.rstd[head.at] = rstd;
    const Float8 gain = Load<Access::kVector>((head.query ? a.q_gain : a.k_gain) + c, kGroup);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] *= rstd * (gain.v[i] + a.plus);
  }
  if (a.r > 0) TurnTeam(lane, angles, 1.0F, &x);
  if (head.exists) Store<Access::kVector>(x, head.data, kGroup);
}

// Writes the block's sums [2, d] to a.sums: those of kThreads / lanes teams, added in order.
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

// Like NormGradKernel, with eight channels per lane: the teams of a block handle heads of every
// gridDim.x-th range of rows and load the next range before they compute. 256 threads, 2 KiB of
// shared memory.
template <class S, int kLanes>
__global__ void __launch_bounds__(kThreads, 3) TeamNormGradKernel(const RotateRows<S> a) {
  constexpr int kTeams = kThreads / kLanes;
  const TeamLane<kLanes> lane(static_cast<int>(a.d), static_cast<int>(a.r));
  const int team = static_cast<int>(threadIdx.x) / kLanes, c = lane.group * kGroup;
  const int64_t all = a.rows * a.heads.divisor(), step = int64_t{gridDim.x} * kTeams;
  Float8 gains[2]{}, sums[2]{};
  if (lane.exists) {
    gains[0] = Load<Access::kVector>(a.q_gain + c, kGroup);
    gains[1] = Load<Access::kVector>(a.k_gain + c, kGroup);
  }
  int64_t first = int64_t{blockIdx.x} * kTeams;
  TeamHead<S> next = LoadHead<S, kLanes, true>(a, lane, first + team);
  for (; first < all; first += step) {
    const TeamHead<S> head = next;
    Angles angles{};
    if (a.r > 0) {
      angles = LoadAngles(lane, a.table + int64_t{head.position} * a.r, static_cast<int>(a.r / 2));
    }
    next = LoadHead<S, kLanes, true>(a, lane, first + step + team);
    Float8 dy = Widen(head.values);
    const Float8 x = Widen(head.input);
    if (a.r > 0) TurnTeam(lane, angles, -1.0F, &dy);
    const float q_rstd = head.query ? head.rstd : 0.0F, k_rstd = head.query ? 0.0F : head.rstd;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float share = dy.v[i] * x.v[i];
      sums[0].v[i] += share * q_rstd;
      sums[1].v[i] += share * k_rstd;
      const float gain = (head.query ? gains[0].v[i] : gains[1].v[i]) + a.plus;
      dot += share * gain;
      dy.v[i] *= gain;
    }
    const float slope = head.rstd * head.rstd * TeamSum<kLanes>(dot) / a.channels;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) dy.v[i] = head.rstd * (dy.v[i] - x.v[i] * slope);
    if (head.exists) Store<Access::kVector>(dy, head.data, kGroup);
  }
  JoinSums(a, kTeams, team, [&](float* joined) {
    if (!lane.exists) return;
    for (int which = 0; which < 2; ++which) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) joined[which * a.d + c + i] += sums[which].v[i];
    }
  });
}

// A block handles every gridDim.x-th row, a warp every eighth head of it. Gain sums stay in
// registers; warps are joined in order at the end. 256 threads, 2 KiB of shared memory.
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

// Returns whether teams of lanes can handle the heads: whole 16-byte vectors at 16-byte boundaries.
template <class S>
bool TeamsFit(const RotateRows<S>& a) {
  return a.d % kGroup == 0 && a.r / 2 % kGroup == 0 && IsAligned16(a.qkv) && IsAligned16(a.input) &&
         IsAligned16(a.table) && IsAligned16(a.q_gain) && IsAligned16(a.k_gain);
}

// Calls body(integral_constant) with the number of lanes of a team for heads of d channels.
template <class Body>
void ForLanes(int64_t d, const Body& body) {
  if (d <= 8 * kGroup) return body(std::integral_constant<int, 8>{});
  if (d <= 16 * kGroup) return body(std::integral_constant<int, 16>{});
  body(std::integral_constant<int, 32>{});
}

}  // namespace

template <class S>
void LaunchNorm(const Stream& stream, const RotateRows<S>& a) {
  if (a.rows == 0) return;
  const int64_t heads = a.rows * (a.a + a.g);
  CheckCountable(heads);
  const cudaStream_t raw = Raw(stream);
  if (TeamsFit(a)) {
    ForLanes(a.d, [&](auto lanes) {
      constexpr int kLanes = decltype(lanes)::value;
      const auto blocks = static_cast<unsigned>(base::CeilDiv(heads, kThreads / kLanes));
      TeamNormKernel<S, kLanes><<<blocks, kThreads, 0, raw>>>(a);
    });
  } else {
    const auto blocks = static_cast<unsigned>(base::CeilDiv(heads, kWarps));
    NormKernel<S><<<blocks, kThreads, 0, raw>>>(a);
  }
  CheckLaunch("Rotate");
}

template <class S>
void LaunchNormGrad(const Stream& stream, const RotateRows<S>& a, int64_t blocks) {
  CheckCountable(a.rows * (a.a + a.g));
  const cudaStream_t raw = Raw(stream);
  const auto grid = static_cast<unsigned>(blocks);
  if (TeamsFit(a)) {
    ForLanes(a.d, [&](auto lanes) {
      TeamNormGradKernel<S, decltype(lanes)::value><<<grid, kThreads, 0, raw>>>(a);
    });
  } else {
    NormGradKernel<S><<<grid, kThreads, 0, raw>>>(a);
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
