// exp in a form that the compiler vectorises, since libm's is a function call; sqrt, log and fma as
// builtins. float has the polynomial below; double calls libm, because fp64 exists for proofs.
// Included only by the files of this folder, which are compiled for MT_CPU_ARCH; everything is
// force-inlined (README.md, decision 2) and therefore uses compiler builtins where functions of std
// might be emitted out of line.
#pragma once

#include <cstdint>
#include <math.h>  // NOLINT(modernize-deprecated-headers): plain C functions, see above

#include "kernels/core/random.h"

namespace mt::kernels::cpu {

MT_ALWAYS_INLINE float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MT_ALWAYS_INLINE double Fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
MT_ALWAYS_INLINE float Sqrt(float x) { return __builtin_sqrtf(x); }
MT_ALWAYS_INLINE double Sqrt(double x) { return __builtin_sqrt(x); }
MT_ALWAYS_INLINE float Log(float x) { return ::logf(x); }
MT_ALWAYS_INLINE double Log(double x) { return ::log(x); }

// e^x within 1.5 ulp for x in [-87.3, 88]; 0 below, e^88 above; NaN gives NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, e^x = 2^n e^r (Cody & Waite 1980). n comes from adding 1.5 *
// 2^23, which leaves round(x / ln 2) in the low bits; ln 2 is subtracted in two parts, the first of
// which is exact in 15 bits. e^r is its Taylor polynomial of degree 7, whose remainder is below r^8
// / 8! (1 + ...) = 5.3e-9 relative: a tenth of half an ulp. 2^n is added to the exponent bits.
MT_ALWAYS_INLINE float Exp(float x) {
  constexpr float kLowest = -87.3F, kHighest = 88.0F;
  constexpr float kMagic = 12582912.0F;
  constexpr float kLn2High = 0.693145751953125F, kLn2Low = 1.42860682030941723212e-6F;
  const float above = x < kLowest ? kLowest : x;
  const float clamped = above > kHighest ? kHighest : above;
  const float shifted = Fma(clamped, 1.44269504088896340736F, kMagic);
  const float n = shifted - kMagic;
  const float r = Fma(n, -kLn2Low, Fma(n, -kLn2High, clamped));
  float p = Fma(r, 1.0F / 5040, 1.0F / 720);
  p = Fma(p, r, 1.0F / 120);
  p = Fma(p, r, 1.0F / 24);
  p = Fma(p, r, 1.0F / 6);
  p = Fma(p, r, 0.5F);
  p = Fma(p, r, 1.0F);
  p = Fma(p, r, 1.0F);
  const uint32_t bits =
      __builtin_bit_cast(uint32_t, p) + (__builtin_bit_cast(uint32_t, shifted) << 23);
  return x < kLowest ? 0.0F : __builtin_bit_cast(float, bits);
}

// e^x through libm; e^709 above 709, so that the result stays finite as in the float version.
MT_ALWAYS_INLINE double Exp(double x) { return ::exp(x > 709.0 ? 709.0 : x); }

}  // namespace mt::kernels::cpu
