// Conversion between storage and compute types on the GPU: values are stored as f32, bf16 or f16
// and computed in f32, and each stored output is rounded once, to nearest even
// (kernels/ops/README.md, rule 4). Work is done in groups of eight elements (16 or 32 bytes),
// loaded and stored as 16-byte vectors where rows are aligned and element by element elsewhere.
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

// Eight elements as they are stored, in 32-bit words, because the compiler handles halves of a word
// poorly.
template <class S>
struct alignas(16) Stored8 {
  static constexpr int kWords = kGroup * static_cast<int>(sizeof(S)) / 4;
  uint32_t word[kWords];
};

// Eight elements in the compute type.
struct Float8 {
  float v[kGroup];
};

template <class S>
__device__ __forceinline__ Float8 Widen(const Stored8<S>& x) {
  Float8 out;
  if constexpr (sizeof(S) == 4) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) out.v[i] = __uint_as_float(x.word[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kGroup / 2; ++i) {
      const uint32_t pair = x.word[i];
      if constexpr (DTypeOf<S>() == DType::kBf16) {
        out.v[2 * i] = __uint_as_float(pair << 16);
        out.v[2 * i + 1] = __uint_as_float(pair & 0xFFFF0000U);
      } else {
        out.v[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(pair)));
        out.v[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
      }
    }
  }
  return out;
}

// Returns two values as the halves of a word, the first in the low half.
template <class S>
__device__ __forceinline__ uint32_t NarrowPair(float low, float high) {
  uint32_t out;
  if constexpr (DTypeOf<S>() == DType::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  }
  return out;
}

template <class S>
__device__ __forceinline__ Stored8<S> Narrow(const Float8& x) {
  Stored8<S> out;
  if constexpr (sizeof(S) == 4) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) out.word[i] = __float_as_uint(x.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kGroup / 2; ++i) out.word[i] = NarrowPair<S>(x.v[2 * i], x.v[2 * i + 1]);
  }
  return out;
}

// Access to a group: as 16-byte vectors, or the first `count` elements one by one (the others read
// as zero and are not written).
enum class Access : uint8_t { kVector, kElements };

template <Access kAccess, class S>
__device__ __forceinline__ Stored8<S> LoadStored(const S* from, int count) {
  Stored8<S> out;
  if constexpr (kAccess == Access::kVector) {
#pragma unroll
    for (int w = 0; w < Stored8<S>::kWords / 4; ++w) {
      reinterpret_cast<uint4*>(&out)[w] = reinterpret_cast<const uint4*>(from)[w];
    }
  } else {
    Float8 x;  // f32 represents every value of S exactly
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] = i < count ? Widen(from[i]) : 0.0F;
    out = Narrow<S>(x);
  }
  return out;
}

template <Access kAccess, class S>
__device__ __forceinline__ Float8 Load(const S* from, int count) {
  if constexpr (kAccess == Access::kVector) {
    return Widen(LoadStored<kAccess>(from, count));
  } else {
    Float8 x;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] = i < count ? Widen(from[i]) : 0.0F;
    return x;
  }
}

template <Access kAccess, class S>
__device__ __forceinline__ void StoreStored(const Stored8<S>& x, S* to, int count) {
  if constexpr (kAccess == Access::kVector) {
#pragma unroll
    for (int w = 0; w < Stored8<S>::kWords / 4; ++w) {
      reinterpret_cast<uint4*>(to)[w] = reinterpret_cast<const uint4*>(&x)[w];
    }
  } else {
    const Float8 wide = Widen(x);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i < count) to[i] = Narrow<S>(wide.v[i]);
    }
  }
}

template <Access kAccess, class S>
__device__ __forceinline__ void Store(const Float8& x, S* to, int count) {
  StoreStored<kAccess>(Narrow<S>(x), to, count);
}

// Returns e^x with an error of about 2 ulp for |x| up to a few, and of |x| / 8 ulp beyond.
__device__ __forceinline__ float Exp(float x) { return __expf(x); }

inline constexpr float kLog2E = 1.4426950408889634F, kLog2 = 0.6931471805599453F;

// Returns 2^x within 2 ulp; 0 below the normal numbers.
__device__ __forceinline__ float Exp2(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// Returns e^(x - shift), given shift * kLog2E as well. 16-bit values cost one multiply-add and one
// more instruction, with an error of |shift| 2^-24 that is the same for every x.
template <class S>
__device__ __forceinline__ float ShiftedExp(float x, float shift, float shift_log2e) {
  if constexpr (sizeof(S) == 2) {
    return Exp2(fmaf(x, kLog2E, -shift_log2e));
  } else {
    return Exp(x - shift);
  }
}

// Multiplies eight values by the mask that 128 random bits define: by `scale` if an element's 16
// bits are at or above the threshold, else by 0.
__device__ __forceinline__ void Drop(const Philox4& bits, uint32_t threshold, float scale,
                                     Float8* x) {
  // The comparand of a whole word: the bits below the upper half never matter.
  const uint32_t high = threshold << 16;
#pragma unroll
  for (int i = 0; i < kGroup / 2; ++i) {
    x->v[2 * i] *= bits.word[i] << 16 >= high ? scale : 0.0F;
    x->v[2 * i + 1] *= bits.word[i] >= high ? scale : 0.0F;
  }
}

}  // namespace mt::kernels::cuda
