// Matrix products of the custom attention kernels on tiles in shared memory: a warp holds 16 rows
// of a tile of logits in registers, in the layout of the accumulators of mma.m16n8k16. bf16 and f16
// use tensor cores (PTX ISA, "Warp-level matrix instructions"), f32 plain fused multiply-adds in
// the same layout, so that the kernels are written once. Layout of float[N][4] in lane l: columns 8
// n + 2 (l mod 4) + {0, 1} of row l / 4 in [0], [1], and of row l / 4 + 8 in [2], [3].
#pragma once

#include <cstdint>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/numeric.cuh"

namespace mt::kernels::cuda {

// Row and column of element i of a lane's four, in an m16n8 tile.
__device__ __forceinline__ int FragmentRow(int i) {
  return static_cast<int>(threadIdx.x) % 32 / 4 + (i / 2) * 8;
}
__device__ __forceinline__ int FragmentColumn(int i) {
  return static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
}

// Elements between rows of a shared tile of D columns: 16 bytes of padding keep the eight rows that
// are read together in different banks.
template <class S, int D>
inline constexpr int kPitch = D + 16 / static_cast<int>(sizeof(S));

// Loads four 8x8 matrices of 16-bit elements (ldmatrix); lane l gives the address of row l mod 8 of
// matrix l / 8.
__device__ __forceinline__ void LoadMatrices(const void* row, uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row)));
}
__device__ __forceinline__ void LoadMatricesTransposed(const void* row, uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row)));
}

// acc [16, 8] += a [16, 16] b [16, 8].
template <class S>
__device__ __forceinline__ void Multiply(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                         float (&acc)[4]) {
  if constexpr (DTypeOf<S>() == DType::kBf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// acc [16, 8 N] += rows [16, D] . columns [8 N, D]^T, both in shared memory.
template <int D, int N, class S>
__device__ __forceinline__ void RowsByRows(const S* rows, const S* columns, float (&acc)[N][4]) {
  constexpr int kRow = kPitch<S, D>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (sizeof(S) == 2) {
    const S* const a_row = rows + lane % 16 * kRow + lane / 16 * 8;
    const S* const b_row = columns + (lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
      uint32_t a[4];
      LoadMatrices(a_row + k, a);
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        uint32_t b[4];
        LoadMatrices(b_row + n * 8 * kRow + k, b);
        Multiply<S>(a, b[0], b[1], acc[n]);
        Multiply<S>(a, b[2], b[3], acc[n + 1]);
      }
    }
  } else {
    const float* const a0 = rows + FragmentRow(0) * kRow;
    const float* const a1 = rows + FragmentRow(2) * kRow;
    const float* const b_row = columns + FragmentColumn(0) * kRow;
#pragma unroll 2
    for (int k = 0; k < D; k += 4) {
      const float4 x0 = *reinterpret_cast<const float4*>(a0 + k);
      const float4 x1 = *reinterpret_cast<const float4*>(a1 + k);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float4 y0 = *reinterpret_cast<const float4*>(b_row + n * 8 * kRow + k);
        const float4 y1 = *reinterpret_cast<const float4*>(b_row + (n * 8 + 1) * kRow + k);
        acc[n][0] += x0.x * y0.x + x0.y * y0.y + x0.z * y0.z + x0.w * y0.w;
        acc[n][1] += x0.x * y1.x + x0.y * y1.y + x0.z * y1.z + x0.w * y1.w;
        acc[n][2] += x1.x * y0.x + x1.y * y0.y + x1.z * y0.z + x1.w * y0.w;
        acc[n][3] += x1.x * y1.x + x1.y * y1.y + x1.z * y1.z + x1.w * y1.w;
      }
    }
  }
}

// acc [16, D] += tile [16, 8 N] (registers) . columns [8 N, D] (shared). The tile's elements are
// rounded to S for the tensor cores.
template <int D, int N, class S>
__device__ __forceinline__ void TileByRows(const float (&tile)[N][4], const S* columns,
                                           float (&acc)[D / 8][4]) {
  constexpr int kRow = kPitch<S, D>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (sizeof(S) == 2) {
    const S* const b_row = columns + lane % 16 * kRow + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      const uint32_t a[4] = {NarrowPair<S>(tile[k][0], tile[k][1]),
                             NarrowPair<S>(tile[k][2], tile[k][3]),
                             NarrowPair<S>(tile[k + 1][0], tile[k + 1][1]),
                             NarrowPair<S>(tile[k + 1][2], tile[k + 1][3])};
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        uint32_t b[4];
        LoadMatricesTransposed(b_row + k * 8 * kRow + n * 8, b);
        Multiply<S>(a, b[0], b[1], acc[n]);
        Multiply<S>(a, b[2], b[3], acc[n + 1]);
      }
    }
  } else {
    const float* const b_row = columns + FragmentColumn(0);
#pragma unroll
    for (int k = 0; k < N * 8; ++k) {
      // Column k of a row is held by one of the four lanes that share the row.
      const int holder = (lane & ~3) | k % 8 / 2;
      const float x0 = __shfl_sync(0xFFFFFFFFU, tile[k / 8][k % 2], holder);
      const float x1 = __shfl_sync(0xFFFFFFFFU, tile[k / 8][2 + k % 2], holder);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        const float2 y = *reinterpret_cast<const float2*>(b_row + k * kRow + n * 8);
        acc[n][0] += x0 * y.x;
        acc[n][1] += x0 * y.y;
        acc[n][2] += x1 * y.x;
        acc[n][3] += x1 * y.y;
      }
    }
  }
}

}  // namespace mt::kernels::cuda
