// What the kernels of products with few rows share.
#pragma once

#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"

namespace mt::kernels::cuda {

template <class S>
struct FewRowsProduct {
  int64_t n, k;
  int rows;
  const S *x, *w, *bias;
  S* y;
};

inline constexpr int kTileColumns = 16;  // of y: rows of w
inline constexpr int kTileRows = 8;      // of y: rows of x
inline constexpr int kTileDepth = 32;    // elements of k that two products take
inline constexpr int64_t kFewTiles = 132;

// d += a b, of 16 x 16 and 16 x 8 elements.
template <class S>
__device__ __forceinline__ void Multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (DTypeOf<S>() == DType::kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// For more than one tile of x, kTiles of them; false where the device has too little shared memory
// for its form, and then nothing was started. k is a multiple of kTileDepth, operands are aligned
// to 16 bytes. The sums are those of TensorFewRowsKernel to the last bit.
template <class S, int kTiles>
bool LaunchStagedRows(const Stream& stream, const FewRowsProduct<S>& p);

}  // namespace mt::kernels::cuda
