// What forward and backward of the own attention share: arguments as plain values, who sees whom,
// dropout, loads of tiles into shared memory. Legend: as in kernels/ops/attention.h.
#pragma once

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/flash_tile.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/ops/attention.h"

namespace mt::kernels::cuda {

template <class S>
struct Heads {
  S* data;
  int64_t s_stride, b_stride, head_stride;
  __device__ S* Row(int64_t s, int64_t b, int64_t head) const {
    return data + s * s_stride + b * b_stride + head * head_stride;
  }
};

template <class S>
Heads<S> HeadsOf(const HeadView& view) {
  return {static_cast<S*>(view.data), view.s_stride, view.b_stride, view.head_stride};
}

struct FlashShape {
  int64_t s, b, a, g, d;
  float scale;
  bool causal;
  int64_t window;       // 0: none
  int64_t lead;         // q0 - k0: query i stands at key i + lead
  const float* slopes;  // [a] or null
  // Attention dropout; threshold 0 = none.
  uint32_t threshold;
  float keep_scale;
  uint64_t key;
  const int64_t* samples;
  const int32_t *positions, *key_positions;
  int32_t first_head;

  __device__ bool Sees(int64_t query, int64_t k) const {
    const int64_t behind = query + lead - k;
    return query < s && k < s && (!causal || behind >= 0) && (window == 0 || behind < window);
  }
  // First and one past the last key that queries [first, first + count) may see.
  __device__ int64_t KeysBegin(int64_t first) const {
    return window == 0 ? 0 : max(int64_t{0}, first + lead - window + 1);
  }
  __device__ int64_t KeysEnd(int64_t first, int64_t count) const {
    return causal ? min(s, first + count + lead) : s;
  }
  // First and one past the last query that may see keys [first, first + count).
  __device__ int64_t QueriesBegin(int64_t first) const {
    return causal ? max(int64_t{0}, first - lead) : 0;
  }
  __device__ int64_t QueriesEnd(int64_t first, int64_t count) const {
    return window == 0 ? s : min(s, first + count - 1 - lead + window);
  }
  // What the probability of (query, key) is multiplied with.
  __device__ float Mask(int64_t b_idx, int64_t head, int64_t query, int64_t k) const {
    const int32_t key_position = key_positions[k];
    const Philox4 bits =
        Philox(key, AttentionDropoutCounter(key_position, positions[query], samples[b_idx],
                                            first_head + static_cast<int32_t>(head)));
    return Bits16(bits, key_position % 8) >= threshold ? keep_scale : 0.0F;
  }
};

inline FlashShape RawShape(const AttentionShape& z, const AttentionDropout& dropout) {
  FlashShape out{.s = z.s,
                 .b = z.b,
                 .a = z.a,
                 .g = z.g,
                 .d = z.d,
                 .scale = static_cast<float>(z.scale),
                 .causal = z.causal,
                 .window = z.window,
                 .lead = z.q0 - z.k0,
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

// Whether all rows of a view begin at 16-byte borders.
template <class S>
bool ViewAligned(const HeadView& view, int64_t d) {
  const auto whole = [](int64_t stride) { return stride % kGroup == 0; };
  return IsAligned16(view.data) && whole(view.s_stride) && whole(view.b_stride) &&
         whole(view.head_stride) && whole(d);
}

// Rows [first, first + kRows) of a head into shared memory, zero beyond the sequence and the head.
template <int D, int kRows, class S>
__device__ __forceinline__ void LoadTile(const Heads<S>& from, const FlashShape& z, bool aligned,
                                         int64_t first, int64_t b, int64_t head, S* tile) {
  constexpr int kGroups = D / kGroup;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kGroups;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / kGroups, c = i % kGroups * kGroup;
    const int count =
        first + row < z.s ? static_cast<int>(max(int64_t{0}, min(z.d - c, int64_t{kGroup}))) : 0;
    Stored8<S> x{};
    if (count > 0) {
      const S* const at = from.Row(first + row, b, head) + c;
      x = aligned ? LoadStored<Access::kVector>(at, kGroup)
                  : LoadStored<Access::kElements>(at, count);
    }
    *reinterpret_cast<Stored8<S>*>(tile + row * kPitch<S, D> + c) = x;
  }
}

// Writes acc [16, D] * scale to rows [first, first + 16) of a head.
template <int D, class S>
__device__ __forceinline__ void StoreRows(const float (&acc)[D / 8][4], const float (&scale)[2],
                                          const Heads<S>& to, const FlashShape& z, int64_t first,
                                          int64_t b, int64_t head) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first + FragmentRow(2 * half);
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

// Sum or maximum over the four lanes that share a row.
__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}
__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

// Sizes of tiles: kRows = 16 kWarps rows stay, kColumns come by. Chosen so that four tiles fit into
// an SM's shared memory.
template <class S, int D>
struct FlashTiles {
  static constexpr int kWarps = sizeof(S) == 4 && D > 128 ? 2 : 4;
  static constexpr int kRows = 16 * kWarps;
  static constexpr int kColumns = sizeof(S) == 4 ? 32 : 64;
  static constexpr int kN = kColumns / 8;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRowTile = kRows * kPitch<S, D>;  // elements
  static constexpr int kColumnTile = kColumns * kPitch<S, D>;
};

// Calls body(S{}, integral_constant D) for the type and the head size rounded up.
template <class Body>
void ForFlashCase(const AttentionShape& z, const char* op, const Body& body) {
  CHECK_LE(z.d, 256) << op;
  ForGpuType(z.dtype, op, [&](auto zero) {
    if (z.d <= 64) return body(zero, std::integral_constant<int, 64>{});
    if (z.d <= 128) return body(zero, std::integral_constant<int, 128>{});
    body(zero, std::integral_constant<int, 256>{});
  });
}

// A kernel may use more than 48 KiB of shared memory only after this.
template <class Kernel>
void AllowShared(Kernel kernel, size_t bytes) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
}

}  // namespace mt::kernels::cuda
