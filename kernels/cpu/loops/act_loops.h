// Activations over a contiguous range of n elements (formulas: kernels/ops/act.h). S is any float
// type; arithmetic runs in Compute<S>.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

namespace mt::kernels::cpu {

template <class S>
void GeluRange(const S* pre, S* y, int64_t n);
template <class S>
void Relu2Range(const S* pre, S* y, int64_t n);
template <class S>
void GeluErfRange(const S* pre, S* y, int64_t n);

// dpre = dy * activation'(pre); dpre may be dy.
template <class S>
void GeluGradRange(const S* dy, const S* pre, S* dpre, int64_t n);
template <class S>
void Relu2GradRange(const S* dy, const S* pre, S* dpre, int64_t n);
template <class S>
void GeluErfGradRange(const S* dy, const S* pre, S* dpre, int64_t n);

// y = activation(gate) * up.
template <class S>
void SwigluRange(const S* gate, const S* up, S* y, int64_t n);
template <class S>
void GegluRange(const S* gate, const S* up, S* y, int64_t n);

template <class S>
struct GatedGrad {
  const S* dy = nullptr;
  const S* gate = nullptr;
  const S* up = nullptr;
  S* dgate = nullptr;  // written: dy * up * activation'(gate)
  S* dup = nullptr;    // written: dy * activation(gate)
};
template <class S>
void SwigluGradRange(const GatedGrad<S>& a, int64_t n);
template <class S>
void GegluGradRange(const GatedGrad<S>& a, int64_t n);

}  // namespace mt::kernels::cpu
