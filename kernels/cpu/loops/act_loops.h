// Activations over a contiguous range. T is float or double.
#pragma once

#include <cstdint>

namespace mt::kernels::cpu {

// y = gelu(pre), tanh form (kernels/ops/act.h).
template <class T>
void GeluRange(const T* pre, T* y, int64_t n);

// dpre = dy * gelu'(pre); dpre may be dy.
template <class T>
void GeluGradRange(const T* dy, const T* pre, T* dpre, int64_t n);

}  // namespace mt::kernels::cpu
