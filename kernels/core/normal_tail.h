// The normal distribution's tail in fp32, for GELU in its exact form, on host and device alike.
#pragma once

#include <math.h>  // NOLINT(modernize-deprecated-headers): plain C functions, as loops/fast_math.h

#include "kernels/core/random.h"

namespace mt::kernels {

// The factor of a in NormalTailOverDensity's k.
inline constexpr float kNormalTailRate = 0.35F;

// Phi(-a) e^(a^2 / 2) for a >= 0, where Phi(-a) is the probability that a normal variable lies
// below -a: k P(k) with k = 1 / (1 + kNormalTailRate a), which the caller divides in its own way.
// P has degree 8 and is fitted for the smallest relative error over 0 <= a <= 14.3, by least
// squares whose weights move to where the error is large: 3.2e-8, and 3.2e-7 with fp32's rounding.
// Phi(-14.3) is below fp32's smallest number.
MT_HOST_DEVICE MT_ALWAYS_INLINE float NormalTailOverDensity(float k) {
  float p = ::fmaf(-0.029154084622859955F, k, 0.14401206374168396F);
  p = ::fmaf(p, k, -0.25579923391342163F);
  p = ::fmaf(p, k, 0.15927325189113617F);
  p = ::fmaf(p, k, -0.023179588839411736F);
  p = ::fmaf(p, k, 0.1055382564663887F);
  p = ::fmaf(p, k, 0.11982499808073044F);
  p = ::fmaf(p, k, 0.13986298441886902F);
  p = ::fmaf(p, k, 0.1396213322877884F);
  return p * k;
}

}  // namespace mt::kernels
