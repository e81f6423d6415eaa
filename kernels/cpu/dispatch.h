// Dispatch from a tensor's run-time dtype to a template argument S, whose arithmetic runs in
// Compute<S>, and the sizes of work that justify a thread.
#pragma once

#include <cstdint>

#include "common/base/check.h"
#include "kernels/core/tensor.h"
#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {

// Elements of an elementwise loop that justify a thread.
inline constexpr int64_t kElementGrain = 16384;

// Rows of `columns` elements that justify a thread.
inline int64_t RowGrain(int64_t columns) {
  return columns >= kElementGrain ? 1 : (kElementGrain + columns - 1) / (columns > 0 ? columns : 1);
}

// Calls body(S{}) with S = float, double, Bf16 or F16. Any other dtype aborts (CHECK) with the op's
// name.
template <class Body>
void ForFloatType(DType dtype, const char* op, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(float{});
    case DType::kF64:
      return body(double{});
    case DType::kBf16:
      return body(Bf16{});
    case DType::kF16:
      return body(F16{});
    default:
      CHECK(false) << op << " takes floats, not " << Name(dtype);
  }
}

// Calls body(T{}) with T = float or double, for operands of an accumulator type. Any other dtype
// aborts (CHECK).
template <class Body>
void ForAccumulatorType(DType dtype, const char* op, const Body& body) {
  if (dtype == DType::kF32) {
    body(float{});
  } else {
    CHECK(dtype == DType::kF64) << op << " takes f32 and f64, not " << Name(dtype);
    body(double{});
  }
}

// Returns the elements, or null if the operand is absent.
template <class T>
T* DataOrNull(const Tensor& tensor) {
  return tensor ? tensor.Data<T>() : nullptr;
}

}  // namespace mt::kernels::cpu
