// Parts shared by the forward and backward kernels of the custom attention: arguments as plain
// values, the mask, dropout, loads of tiles into shared memory.
// Legend: as in kernels/ops/attention.h.
#pragma once

#include "kernels/cuda/attention/flash_tile.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/ops/attention.h"

namespace mt::kernels::cuda {

// A HeadView with its element type.
template <class S>
struct Heads {
  S* data;
  int64_t s_stride, b_stride, head_stride;
  __device__ __forceinline__ S* Row(int64_t s, int64_t b, int64_t head) const {
    return data + s * s_stride + b * b_stride + head * head_stride;
  }
};

template <class S>
Heads<S> HeadsOf(const HeadView& view) {
  return {static_cast<S*>(view.data), view.s_stride, view.b_stride, view.head_stride};
}

// Shape, mask and dropout of a call. Sizes and positions fit 32 bits (checked by RawShape), which
// keeps the arithmetic per logit short.
struct FlashShape {
  int s, b, a, g, d;
  float scale;
  bool causal;
  int window;           // keys; 0: no limit
  int lead;             // q0 - k0: query i is at the position of key i + lead
  const float* slopes;  // [a] or null
  // Attention dropout; threshold 0: none.
  uint32_t threshold;
  float keep_scale;
  uint64_t key;
  const int64_t* samples;
  const int32_t *positions, *key_positions;
  int32_t first_head;

  __device__ __forceinline__ bool Sees(int query, int k) const {
    const int behind = query + lead - k;
    return query < s && k < s && (!causal || behind >= 0) && (window == 0 || behind < window);
  }
  // Returns whether each of `queries` queries from `query` on attends to each of `keys` keys from
  // `k` on.
  __device__ __forceinline__ bool AllSee(int query, int queries, int k, int keys) const {
    const int nearest = query + lead - (k + keys - 1), farthest = query + queries - 1 + lead - k;
    return query + queries <= s && k + keys <= s && (!causal || nearest >= 0) &&
           (window == 0 || farthest < window);
  }
  // First, and one past the last, key to which queries [first, first + count) may attend.
  __device__ int KeysBegin(int first) const {
    return window == 0 ? 0 : max(0, first + lead - window + 1);
  }
  __device__ int KeysEnd(int first, int count) const {
    return causal ? min(s, first + count + lead) : s;
  }
  // First, and one past the last, query that may attend to keys [first, first + count).
  __device__ int QueriesBegin(int first) const { return causal ? max(0, first - lead) : 0; }
  __device__ int QueriesEnd(int first, int count) const {
    return window == 0 ? s : min(s, first + count - 1 - lead + window);
  }
};

inline FlashShape RawShape(const AttentionShape& z, const AttentionDropout& dropout) {
  const auto size = [](int64_t x) { return base::CheckedCast<int>(x); };
  FlashShape out{.s = size(z.s),
                 .b = size(z.b),
                 .a = size(z.a),
                 .g = size(z.g),
                 .d = size(z.d),
                 .scale = static_cast<float>(z.scale),
                 .causal = z.causal,
                 // No key is further behind its query than this.
                 .window = size(std::min(z.window, z.s + std::abs(z.q0 - z.k0))),
                 .lead = size(z.q0 - z.k0),
                 .slopes = DataOrNull<float>(z.slopes),
                 .first_head = dropout.first_head};
  if (!dropout.rate.active()) return out;
  out.threshold = dropout.rate.threshold;
  out.keep_scale = static_cast<float>(dropout.rate.Scale());
  out.key = dropout.key;
  out.samples = dropout.samples.Data<int64_t>();
  out.positions = dropout.positions.Data<int32_t>();
  out.key_positions = dropout.key_positions ? dropout.key_positions.Data<int32_t>() : out.positions;
  return out;
}

// Returns whether all rows of a view begin at multiples of 16 bytes.
template <class S>
bool ViewAligned(const HeadView& view, int64_t d) {
  const auto whole = [](int64_t stride) { return stride % kGroup == 0; };
  return IsAligned16(view.data) && whole(view.s_stride) && whole(view.b_stride) &&
         whole(view.head_stride) && whole(d);
}

// Copies rows [first, first + kRows) of a head into shared memory, with zeros beyond the sequence
// and the head. Aligned rows are copied asynchronously and may be incomplete when it returns.
template <int D, int kRows, class S>
__device__ __forceinline__ void LoadTile(const Heads<S>& from, const FlashShape& z, bool aligned,
                                         int first, int b, int head, S* tile) {
  constexpr int kGroups = D / kGroup;
  const S* const base = from.Row(first, b, head);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kGroups;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / kGroups, c = i % kGroups * kGroup;
    const int count = first + row < z.s ? max(0, min(z.d - c, kGroup)) : 0;
    const S* const at = base + row * from.s_stride + c;
    S* const to = tile + row * kPitch<S, D> + c;
    if (aligned && count == kGroup) {
#pragma unroll
      for (int part = 0; part < Stored8<S>::kWords / 4; ++part) {
        constexpr int kStep = 16 / static_cast<int>(sizeof(S));
        CopyAsync(to + part * kStep, at + part * kStep);
      }
    } else {
      Stored8<S> x{};
      if (count > 0) x = LoadStored<Access::kElements>(at, count);
      *reinterpret_cast<Stored8<S>*>(to) = x;
    }
  }
}

// Writes acc [16, D] * scale to rows [first, first + 16) of a head.
template <int D, class S>
__device__ __forceinline__ void StoreRows(const float (&acc)[D / 8][4], const float (&scale)[2],
                                          const Heads<S>& to, const FlashShape& z, int first, int b,
                                          int head) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + FragmentRow(2 * half);
    if (row >= z.s) continue;
    S* const out = to.Row(row, b, head);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int c = n * 8 + FragmentColumn(i);
        if (c < z.d) out[c] = Narrow<S>(acc[n][2 * half + i] * scale[half]);
      }
    }
  }
}

// The attention dropout of a tile of queries and keys as bits in shared memory, one byte per eight
// keys. Where positions are consecutive, as they are without context parallelism, one Philox call
// gives a byte.
template <int kQueries, int kKeys>
struct KeepBits {
  uint8_t bits[kQueries][kKeys / 8];

  __device__ void Fill(const FlashShape& z, int b, int head, int query, int key) {
    const auto global_head = z.first_head + static_cast<int32_t>(head);
    for (int i = static_cast<int>(threadIdx.x); i < kQueries * kKeys / 8;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / (kKeys / 8), group = i % (kKeys / 8);
      const int32_t position = z.positions[min(query + row, z.s - 1)];
      uint32_t byte = 0;
      Philox4 random{};
      int64_t drawn = -1;  // the group of eight positions that `random` is for
      for (int j = 0; j < 8; ++j) {
        const int32_t key_position = z.key_positions[min(key + group * 8 + j, z.s - 1)];
        if (key_position / 8 != drawn) {
          drawn = key_position / 8;
          random = Philox(
              z.key, AttentionDropoutCounter(key_position, position, z.samples[b], global_head));
        }
        byte |= Bits16(random, key_position % 8) >= z.threshold ? 1U << j : 0U;
      }
      bits[row][group] = static_cast<uint8_t>(byte);
    }
  }
  __device__ __forceinline__ bool Keeps(int query, int key) const {
    return (bits[query][key / 8] >> (key % 8) & 1) != 0;
  }
};

// Turns raw logits of a tile into logits in units of log 2: scaled, with ALiBi, and -infinity where
// a query does not attend to a key. Rows [row, row + 16) and columns [column, column + 8 N) are
// queries and keys, or keys and queries.
template <bool kQueriesAreRows, int N>
__device__ __forceinline__ void PlaceTile(const FlashShape& z, int row, int column, float slope,
                                          float (&tile)[N][4]) {
  const float scale = z.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[n][i] *= scale;
  }
  // Most tiles are entirely visible and skip the masking below.
  const bool all_see =
      kQueriesAreRows ? z.AllSee(row, 16, column, 8 * N) : z.AllSee(column, 8 * N, row, 16);
  if (slope == 0.0F && all_see) return;
  const float per_key = slope * kLog2E;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = row + FragmentRow(i), c = column + n * 8 + FragmentColumn(i);
      const int query = kQueriesAreRows ? r : c, key = kQueriesAreRows ? c : r;
      tile[n][i] += per_key * static_cast<float>(key - query - z.lead);
      if (!z.Sees(query, key)) tile[n][i] = -INFINITY;
    }
  }
}

// Sum and maximum over the four lanes that share a row.
__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}
__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

// Tile sizes: a tile of kRows = 16 kWarps rows stays, tiles of kColumns pass by, and kStages of
// those are in shared memory at a time, so that the next one is copied during the computation.
// Chosen to fit an SM.
template <class S, int D>
struct FlashTiles {
  static constexpr bool kLarge = D > 128;
  static constexpr int kWarps = (sizeof(S) == 4 ? 4 : 8) / (kLarge ? 2 : 1);
  static constexpr int kRows = 16 * kWarps;
  static constexpr int kColumns = sizeof(S) == 4 ? 32 : 64;
  static constexpr int kStages = kLarge ? 1 : 2;
  static constexpr int kN = kColumns / 8;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRowTile = kRows * kPitch<S, D>;  // elements
  static constexpr int kColumnTile = kColumns * kPitch<S, D>;
  // Shared memory of a thread block in bytes: dynamic, of the forward kernel and of both gradient
  // kernels, and static in each of them (dropout bits, lse and delta).
  static constexpr int64_t kForwardBytes =
      (kRowTile + 2 * kStages * kColumnTile) * int64_t{sizeof(S)};
  static constexpr int64_t kGradBytes = 2 * (kRowTile + kStages * kColumnTile) * int64_t{sizeof(S)};
  static constexpr int64_t kStaticBytes =
      kStages * (kRows * kColumns / 8 + 2 * kColumns * int64_t{sizeof(float)});
};

// The loop over the passing tiles: `load(at, stage)` starts the copies of the tile at `at`,
// `compute(at, stage)` uses it.
template <class Tiles, class LoadStage, class Compute>
__device__ __forceinline__ void ForTiles(int begin, int end, const LoadStage& load,
                                         const Compute& compute) {
  if (begin < end) load(begin, 0);
  int stage = 0;
  for (int at = begin; at < end; at += Tiles::kColumns) {
    CommitCopies();
    WaitCopies<0>();
    __syncthreads();  // all threads see the tile, and all have finished the one before
    if constexpr (Tiles::kStages == 2) {
      if (at + Tiles::kColumns < end) load(at + Tiles::kColumns, stage ^ 1);
    }
    compute(at, stage);
    if constexpr (Tiles::kStages == 2) {
      stage ^= 1;
    } else {
      __syncthreads();
      if (at + Tiles::kColumns < end) load(at + Tiles::kColumns, 0);
    }
  }
}

// Calls body(S{}, integral_constant D) with D = 64, 128 or 256, the head size rounded up. Larger
// heads abort (CHECK).
template <class Body>
void ForFlashCase(const AttentionShape& z, const char* op, const Body& body) {
  CHECK_LE(z.d, 256) << op;
  ForGpuType(z.dtype, op, [&](auto zero) {
    if (z.d <= 64) return body(zero, std::integral_constant<int, 64>{});
    if (z.d <= 128) return body(zero, std::integral_constant<int, 128>{});
    body(zero, std::integral_constant<int, 256>{});
  });
}

// Permits `bytes` of dynamic shared memory, which a kernel needs to use more than 48 KiB.
template <class Kernel>
void AllowShared(Kernel kernel, int64_t bytes) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
}

}  // namespace mt::kernels::cuda
