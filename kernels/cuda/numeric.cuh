// From storage to arithmetic and back on the GPU: values are stored as f32, bf16 or f16 and
// computed in f32; each stored output is rounded once, to nearest even (kernels/ops/README.md, rule
// 4). Work goes in groups of eight elements, 16 or 32 bytes, loaded and stored as 16-byte vectors
// where rows are aligned, element by element where they are not.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/core/dtype.h"
#include "kernels/core/random.h"

namespace mt::kernels::cuda {

inline constexpr int kGroup = 8;

__device__ __forceinline__ float Widen(float x) { return x; }
__device__ __forceinline__ float Widen(Bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float Widen(F16 x) { return __half2float(__ushort_as_half(x.bits)); }

template <class S>
__device__ __forceinline__ S Narrow(float x) {
  if constexpr (sizeof(S) == 4) {
    return x;
  } else if constexpr (DTypeOf<S>() == DType::kBf16) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else {
    return {__half_as_ushort(__float2half_rn(x))};
  }
}

// Eight elements as they are stored.
template <class S>
struct alignas(16) Stored8 {
  S v[kGroup];
};

// Eight elements as they are computed with.
struct Float8 {
  float v[kGroup];
};

template <class S>
__device__ __forceinline__ Float8 Widen(const Stored8<S>& x) {
  Float8 out;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) out.v[i] = Widen(x.v[i]);
  return out;
}

template <class S>
__device__ __forceinline__ Stored8<S> Narrow(const Float8& x) {
  Stored8<S> out;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) out.v[i] = Narrow<S>(x.v[i]);
  return out;
}

// How a group is accessed: as 16-byte vectors, or the first `count` elements one by one (the others
// read as zero and are not written).
enum class Access : uint8_t { kVector, kElements };

template <Access kAccess, class S>
__device__ __forceinline__ Stored8<S> LoadStored(const S* from, int count) {
  Stored8<S> out;
  if constexpr (kAccess == Access::kVector) {
    constexpr int kWords = static_cast<int>(sizeof(out) / sizeof(uint4));
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      reinterpret_cast<uint4*>(&out)[w] = reinterpret_cast<const uint4*>(from)[w];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) out.v[i] = i < count ? from[i] : S{};
  }
  return out;
}

template <Access kAccess, class S>
__device__ __forceinline__ Float8 Load(const S* from, int count) {
  return Widen(LoadStored<kAccess>(from, count));
}

template <Access kAccess, class S>
__device__ __forceinline__ void Store(const Float8& x, S* to, int count) {
  const Stored8<S> out = Narrow<S>(x);
  if constexpr (kAccess == Access::kVector) {
    constexpr int kWords = static_cast<int>(sizeof(out) / sizeof(uint4));
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      reinterpret_cast<uint4*>(to)[w] = reinterpret_cast<const uint4*>(&out)[w];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i < count) to[i] = out.v[i];
    }
  }
}

// e^x to about 2 ulp for |x| up to a few, |x| / 8 ulp beyond.
__device__ __forceinline__ float Exp(float x) { return __expf(x); }

// Multiplies eight channels from `channel` (a multiple of 8) on with their hidden-dropout mask.
__device__ __forceinline__ void DropHidden(uint64_t key, const Philox4& counter, uint32_t threshold,
                                           float scale, Float8* x) {
  const Philox4 bits = Philox(key, counter);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) x->v[i] *= Bits16(bits, i) >= threshold ? scale : 0.0F;
}

}  // namespace mt::kernels::cuda
