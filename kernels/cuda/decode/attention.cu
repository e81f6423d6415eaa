// Attention of tokens over their sequences' caches, in fp32. The keys of a head are cut into parts
// of kKeys, by their numbers, so that a row's bits depend on nothing but its own sequence; a block
// takes one part of one row and head, and leaves its largest logit, its sum and its weighted
// values; a second kernel adds the parts in their order. Within a block, lanes of a warp share a
// key by channels, and groups of lanes go through the keys side by side, each with a running
// softmax of its own (Dao et al. 2023, "Flash-Decoding").
#include "common/base/math.h"
#include "kernels/cuda/decode/decode.h"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/numeric.cuh"

namespace mt::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kKeys = 256;  // of a part

template <class S>
struct DecodeProblem {
  int a, g, d, window;
  int64_t room;  // positions of the cache
  int parts;
  float scale;
  const float* slopes;  // [a], or null
  const S* qkv;         // [T, (a + 2g) d]
  const int32_t *sequences, *positions;
  S *k_cache, *v_cache;  // [c, g, room, d]
  S* o;                  // [T, a d]
  float* scratch;        // [T, a, parts, 2 + d]: largest logit, sum, values

  __device__ int64_t columns() const { return static_cast<int64_t>(a + 2 * g) * d; }
  __device__ int64_t CacheRow(int64_t row, int kv_head, int64_t position) const {
    return ((static_cast<int64_t>(sequences[row]) * g + kv_head) * room + position) * d;
  }
  __device__ int64_t FirstKey(int64_t last) const {
    return window > 0 && last + 1 > window ? last + 1 - window : 0;
  }
};

// Grid: rows.
template <class S, Access kAccess>
__global__ void __launch_bounds__(kThreads) StoreKernel(DecodeProblem<S> p) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int64_t row = blockIdx.x;
  const int groups = (p.d + kGroup - 1) / kGroup;  // of a head
  for (int i = static_cast<int>(threadIdx.x); i < 2 * p.g * groups; i += kThreads) {
    const int head = i / groups, channel = i % groups * kGroup;  // key heads, then value heads
    const int count = min(kGroup, p.d - channel);
    const S* const from = p.qkv + row * p.columns() + static_cast<int64_t>(p.a + head) * p.d;
    S* const cache = head < p.g ? p.k_cache : p.v_cache;
    const int64_t to = p.CacheRow(row, head % p.g, p.positions[row]);
    StoreStored<kAccess>(LoadStored<kAccess>(from + channel, count), cache + to + channel, count);
  }
}

// A softmax that has seen some keys: its values are weighted by e^(logit - largest).
struct Running {
  float largest = -INFINITY, sum = 0.0F;
  Float8 value{};

  // The next keys; a logit of -infinity is none, but not all of them are.
  template <int kCount, class S>
  __device__ void Add(const float (&logit)[kCount], const Stored8<S> (&v)[kCount]) {
    float now = largest;
#pragma unroll
    for (int j = 0; j < kCount; ++j) now = fmaxf(now, logit[j]);
    if (now == -INFINITY) return;
    // Nothing seen yet: e^(-inf - now) is 0.
    const float keep = __expf(largest - now);
    largest = now;
    sum *= keep;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) value.v[i] *= keep;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float weight = __expf(logit[j] - now);
      const Float8 wide = Widen(v[j]);
      sum += weight;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) value.v[i] = fmaf(weight, wide.v[i], value.v[i]);
    }
  }
};

// Grid: parts, a, rows. kLanes lanes share a key, eight channels each; a team of them takes four
// keys at once, whose loads do not wait for each other. kStores: the row's own key and value come
// from the projection, and one block of each key/value head stores them.
template <class S, int kLanes, Access kAccess, bool kStores>
__global__ void __launch_bounds__(kThreads, sizeof(S) == 2 ? 4 : 2) PartKernel(DecodeProblem<S> p) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int part = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int64_t row = blockIdx.z;
  const int64_t last = p.positions[row];
  const int64_t begin = max(p.FirstKey(last), part * kKeys);
  const int64_t end = min(last + 1, (part + 1) * kKeys);
  if (begin >= end) return;
  constexpr int kTeams = kThreads / kLanes;
  constexpr int kAtOnce = 4;
  const int team = static_cast<int>(threadIdx.x) / kLanes;
  const int channel = static_cast<int>(threadIdx.x) % kLanes * kGroup;
  const int count = max(0, min(kGroup, p.d - channel));
  const int kv_head = head / (p.a / p.g);
  const int64_t cache = p.CacheRow(row, kv_head, 0);
  const S* const own = p.qkv + row * p.columns() + static_cast<int64_t>(p.a + kv_head) * p.d;
  const int64_t own_value = static_cast<int64_t>(p.g) * p.d;  // behind its key
  if (kStores && end == last + 1 && head % (p.a / p.g) == 0 && team == 0 && count > 0) {
    StoreStored<kAccess>(LoadStored<kAccess>(own + channel, count),
                         p.k_cache + cache + last * p.d + channel, count);
    StoreStored<kAccess>(LoadStored<kAccess>(own + own_value + channel, count),
                         p.v_cache + cache + last * p.d + channel, count);
  }
  Float8 q{};
  if (count > 0) {
    q = Load<kAccess>(p.qkv + row * p.columns() + static_cast<int64_t>(head) * p.d + channel,
                      count);
  }
  const float slope = p.slopes == nullptr ? 0.0F : p.slopes[head];
  Running seen;
  // All teams go round as often, as the shuffles need.
  const int rounds = static_cast<int>((end - begin + kTeams * kAtOnce - 1) / (kTeams * kAtOnce));
  for (int round = 0; round < rounds; ++round) {
    const int64_t first = begin + (static_cast<int64_t>(round) * kTeams + team) * kAtOnce;
    Stored8<S> k[kAtOnce]{}, v[kAtOnce]{};
    float logit[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t key = min(first + j, end - 1);
      const bool is_own = kStores && key == last;
      const S* const from = is_own ? own : p.k_cache + cache + key * p.d;
      const S* const value = is_own ? own + own_value : p.v_cache + cache + key * p.d;
      if (count > 0) {
        k[j] = LoadStored<kAccess>(from + channel, count);
        v[j] = LoadStored<kAccess>(value + channel, count);
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const Float8 key = Widen(k[j]);
      float dot = 0.0F;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) dot = fmaf(q.v[i], key.v[i], dot);
#pragma unroll
      for (int half = kLanes / 2; half > 0; half /= 2) dot += __shfl_xor_sync(~0U, dot, half);
      const auto distance = static_cast<float>(first + j - last);
      logit[j] = first + j < end ? fmaf(slope, distance, p.scale * dot) : -INFINITY;
    }
    seen.Add(logit, v);
  }
  // The teams' results, brought to one largest logit and added in the order of teams.
  __shared__ float largest[kTeams], sums[kTeams];
  __shared__ float values[kTeams][kLanes * kGroup];
  largest[team] = seen.largest;
  __syncthreads();
  float all_largest = -INFINITY;
#pragma unroll 8
  for (int other = 0; other < kTeams; ++other) all_largest = fmaxf(all_largest, largest[other]);
  const float share = __expf(seen.largest - all_largest);  // 0 of a team without keys
  sums[team] = seen.sum * share;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) values[team][channel + i] = seen.value.v[i] * share;
  __syncthreads();
  float* const out = p.scratch + ((row * p.a + head) * p.parts + part) * (2 + p.d);
  for (int i = static_cast<int>(threadIdx.x); i < p.d; i += kThreads) {
    float sum = 0.0F, value = 0.0F;
#pragma unroll 8
    for (int other = 0; other < kTeams; ++other) {
      sum += sums[other];
      value += values[other][i];
    }
    if (p.parts == 1) {
      p.o[(row * p.a + head) * p.d + i] = Narrow<S>(value / sum);
      continue;
    }
    out[2 + i] = value;
    if (i > 0) continue;
    out[0] = all_largest;
    out[1] = sum;
  }
}

// Grid: a, rows; threads: channels.
template <class S>
__global__ void __launch_bounds__(kThreads) JoinKernel(DecodeProblem<S> p) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int head = static_cast<int>(blockIdx.x);
  const int64_t row = blockIdx.y;
  const int64_t last = p.positions[row];
  const int first_part = static_cast<int>(p.FirstKey(last) / kKeys);
  const int last_part = static_cast<int>(last / kKeys);
  const float* const all = p.scratch + (row * p.a + head) * p.parts * (2 + p.d);
  float largest = -INFINITY;
  for (int part = first_part; part <= last_part; ++part)
    largest = fmaxf(largest, all[part * (2 + p.d)]);
  for (int channel = static_cast<int>(threadIdx.x); channel < p.d; channel += kThreads) {
    float sum = 0.0F, value = 0.0F;
    for (int part = first_part; part <= last_part; ++part) {
      const float* const one = all + part * (2 + p.d);
      const float weight = __expf(one[0] - largest);
      sum = fmaf(one[1], weight, sum);
      value = fmaf(one[2 + channel], weight, value);
    }
    p.o[(row * p.a + head) * p.d + channel] = Narrow<S>(value / sum);
  }
}

int PartsOf(const AttentionDecodeArgs& a) {
  return static_cast<int>(base::CeilDiv(a.k_cache.shape[2], kKeys));
}

template <class S, int kLanes, bool kStores>
void LaunchParts(const Stream& stream, const DecodeProblem<S>& p, unsigned rows, bool aligned) {
  LaunchDependent(
      stream,
      aligned ? PartKernel<S, kLanes, Access::kVector, kStores>
              : PartKernel<S, kLanes, Access::kElements, kStores>,
      {dim3(static_cast<unsigned>(p.parts), static_cast<unsigned>(p.a), rows), kThreads}, p);
}

template <class S>
DecodeProblem<S> ProblemOf(const AttentionDecodeArgs& a) {
  return {.a = static_cast<int>(a.a),
          .g = static_cast<int>(a.g),
          .d = static_cast<int>(a.d),
          .window = static_cast<int>(a.window),
          .room = a.k_cache.shape[2],
          .parts = PartsOf(a),
          .scale = static_cast<float>(a.scale),
          .slopes = DataOrNull<float>(a.slopes),
          .qkv = a.qkv.Data<S>(),
          .sequences = a.sequences.Data<int32_t>(),
          .positions = a.positions.Data<int32_t>(),
          .k_cache = a.k_cache.Data<S>(),
          .v_cache = a.v_cache.Data<S>(),
          .o = DataOrNull<S>(a.o),
          .scratch = static_cast<float*>(a.workspace.data)};
}

template <class S>
bool IsAligned(const DecodeProblem<S>& p) {
  return p.d % kGroup == 0 && IsAligned16(p.qkv) && IsAligned16(p.k_cache) &&
         IsAligned16(p.v_cache) && IsAligned16(p.o);
}

template <class S>
void Store(const Stream& stream, const AttentionDecodeArgs& a) {
  const DecodeProblem<S> p = ProblemOf<S>(a);
  LaunchDependent(
      stream, IsAligned(p) ? StoreKernel<S, Access::kVector> : StoreKernel<S, Access::kElements>,
      {static_cast<unsigned>(a.qkv.shape[0]), kThreads}, p);
  CheckLaunch("attention StoreKeys");
}

template <class S, bool kStores>
void Attend(const Stream& stream, const AttentionDecodeArgs& a) {
  const DecodeProblem<S> p = ProblemOf<S>(a);
  const auto rows = static_cast<unsigned>(a.qkv.shape[0]);
  const int64_t groups = base::CeilDiv(a.d, int64_t{kGroup});
  if (groups <= 4) {
    LaunchParts<S, 4, kStores>(stream, p, rows, IsAligned(p));
  } else if (groups <= 8) {
    LaunchParts<S, 8, kStores>(stream, p, rows, IsAligned(p));
  } else if (groups <= 16) {
    LaunchParts<S, 16, kStores>(stream, p, rows, IsAligned(p));
  } else {
    LaunchParts<S, 32, kStores>(stream, p, rows, IsAligned(p));
  }
  if (p.parts > 1) {
    LaunchDependent(stream, JoinKernel<S>, {dim3(static_cast<unsigned>(p.a), rows), kThreads}, p);
  }
  CheckLaunch("attention Decode");
}

}  // namespace

int64_t DecodeAttentionBytes(const AttentionDecodeArgs& a) {
  const int parts = PartsOf(a);
  if (parts == 1) return 0;
  return a.qkv.shape[0] * a.a * parts * (2 + a.d) * SizeOf(DType::kF32);
}

void LaunchStoreKeys(const Stream& stream, const AttentionDecodeArgs& a) {
  ForGpuType(a.dtype, "attention StoreKeys", [&](auto zero) { Store<decltype(zero)>(stream, a); });
}

void LaunchDecodeAttention(const Stream& stream, const AttentionDecodeArgs& a) {
  ForGpuType(a.dtype, "attention Decode", [&](auto zero) {
    using S = decltype(zero);
    a.one_row_each ? Attend<S, true>(stream, a) : Attend<S, false>(stream, a);
  });
}

}  // namespace mt::kernels::cuda
