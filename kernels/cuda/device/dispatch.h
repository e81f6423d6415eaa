// Dispatch from a tensor's run-time dtype to a template argument, for the dtypes that the GPU
// backend computes in.
#pragma once

#include "common/base/check.h"
#include "kernels/core/tensor.h"

namespace mt::kernels::cuda {

// Calls body(S{}) with S = float, Bf16 or F16, the dtypes of activations and weights on a GPU. Any
// other dtype aborts (CHECK) with the op's name.
template <class Body>
void ForGpuType(DType dtype, const char* op, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(float{});
    case DType::kBf16:
      return body(Bf16{});
    case DType::kF16:
      return body(F16{});
    default:
      CHECK(false) << op << " takes f32, bf16 and f16 on a GPU, not " << Name(dtype);
  }
}

// Returns the elements, or null if the operand is absent.
template <class T>
T* DataOrNull(const Tensor& tensor) {
  return tensor ? tensor.Data<T>() : nullptr;
}

}  // namespace mt::kernels::cuda
