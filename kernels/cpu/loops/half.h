// Conversion between storage and compute types: f32 and f64 are computed with as they are stored,
// bf16 and f16 (IEEE 754 binary16) in float. Rounding is to nearest, ties to even; NaN stays NaN
// (quiet). Branchless, so that loops around it vectorise; force-inlined (README.md, decision 2).
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/core/random.h"

namespace mt::kernels::cpu {

// The type in which values stored as S are computed, summed and kept as statistics.
template <class S>
struct ComputeOf {
  using Type = S;
};
template <>
struct ComputeOf<Bf16> {
  using Type = float;
};
template <>
struct ComputeOf<F16> {
  using Type = float;
};
template <class S>
using Compute = typename ComputeOf<S>::Type;

MT_ALWAYS_INLINE float FloatFromBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
MT_ALWAYS_INLINE uint32_t BitsOfFloat(float x) { return __builtin_bit_cast(uint32_t, x); }

MT_ALWAYS_INLINE float Widen(float x) { return x; }
MT_ALWAYS_INLINE double Widen(double x) { return x; }
MT_ALWAYS_INLINE float Widen(Bf16 x) { return FloatFromBits(static_cast<uint32_t>(x.bits) << 16); }
MT_ALWAYS_INLINE float Widen(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000U) << 16;
  const uint32_t magnitude = x.bits & 0x7FFFU;
  const uint32_t normal = (magnitude << 13) + (112U << 23);
  const uint32_t special = (magnitude << 13) | 0x7F800000U;
  const uint32_t subnormal =
      BitsOfFloat(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
  uint32_t bits = magnitude < 0x400U ? subnormal : normal;
  bits = magnitude >= 0x7C00U ? special : bits;
  return FloatFromBits(bits | sign);
}

MT_ALWAYS_INLINE void Narrow(float x, float* to) { *to = x; }
MT_ALWAYS_INLINE void Narrow(double x, double* to) { *to = x; }

// Round to nearest even: adds half of the last kept bit, less one if that bit is even. A carry into
// the exponent correctly gives the next binade, and infinity past the largest number.
MT_ALWAYS_INLINE void Narrow(float x, Bf16* to) {
  const uint32_t bits = BitsOfFloat(x);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40U;
  to->bits = static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
}

// Normal numbers: the exponent is rebiased by 112 and 13 bits are rounded away as above. Below
// 2^-14, adding 0.5 leaves the subnormal's bits, rounded by the adder, at the end of the sum. From
// 65520 on the result is infinity.
MT_ALWAYS_INLINE void Narrow(float x, F16* to) {
  const uint32_t bits = BitsOfFloat(x);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  const uint32_t subnormal = BitsOfFloat(FloatFromBits(magnitude) + 0.5F) - BitsOfFloat(0.5F);
  const uint32_t nan = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  uint32_t half = magnitude < (113U << 23) ? subnormal : normal;
  half = magnitude >= 0x477FF000U ? 0x7C00U : half;
  half = magnitude > 0x7F800000U ? nan : half;
  to->bits = static_cast<uint16_t>(half | sign);
}

// Elements per chunk in loops over 16-bit elements: a chunk is widened into a buffer, computed in
// f32 and rounded into place. These three loops each vectorise better than one that mixes widths
// (measured: 1.4 to 2 times). Other types are computed in place, without a copy.
inline constexpr int64_t kHalfChunk = 256;

// Returns n elements in the compute type: `from` itself, or a widened copy in `buffer`.
template <class S>
MT_ALWAYS_INLINE const Compute<S>* WidenChunk(const S* from, int64_t n, Compute<S>* buffer) {
  if constexpr (sizeof(S) == sizeof(Compute<S>)) {
    return from;
  } else {
    for (int64_t i = 0; i < n; ++i) buffer[i] = Widen(from[i]);
    return buffer;
  }
}

// Returns the memory in which a chunk destined for `to` is computed.
template <class S>
MT_ALWAYS_INLINE Compute<S>* TargetChunk(S* to, Compute<S>* buffer) {
  if constexpr (sizeof(S) == sizeof(Compute<S>)) {
    return to;
  } else {
    return buffer;
  }
}

// Rounds a computed chunk into `to`; does nothing if it was computed in place.
template <class S>
MT_ALWAYS_INLINE void NarrowChunk(const Compute<S>* computed, int64_t n, S* to) {
  if constexpr (sizeof(S) != sizeof(Compute<S>)) {
    for (int64_t i = 0; i < n; ++i) Narrow(computed[i], &to[i]);
  }
}

}  // namespace mt::kernels::cpu
