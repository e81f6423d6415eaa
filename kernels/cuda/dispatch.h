// From a tensor's run-time type to a template's argument, and small checks that families share.
#pragma once

#include "common/base/check.h"
#include "kernels/core/tensor.h"

namespace mt::kernels::cuda {

// Calls body(S{}) with S = float, Bf16 or F16: what activations and weights may be on a GPU.
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

// The elements, or null where the operand is absent.
template <class T>
T* DataOrNull(const Tensor& tensor) {
  return tensor ? tensor.Data<T>() : nullptr;
}

}  // namespace mt::kernels::cuda
