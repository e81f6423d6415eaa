// A tensor is a view: pointer, element type and row-major shape. It owns nothing and is passed by
// value; its memory belongs to the arenas of worker/memory and is device memory unless a comment
// says otherwise. Where an operand is optional, a Tensor with data == nullptr means "absent".
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "common/base/check.h"
#include "kernels/core/dtype.h"

namespace mt::kernels {

// A shape of up to four dimensions, outermost first.
class Shape {
 public:
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> dims) {
    CHECK_LE(dims.size(), dims_.size());
    for (const int64_t d : dims) dims_[static_cast<size_t>(rank_++)] = d;
  }
  constexpr int rank() const { return rank_; }
  constexpr int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  constexpr int64_t NumElements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= (*this)[i];
    return n;
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, 4> dims_{};
  int rank_ = 0;
};

// A contiguous row-major view.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  explicit operator bool() const { return data != nullptr; }
  int64_t NumElements() const { return shape.NumElements(); }
  int64_t Bytes() const { return NumElements() * SizeOf(dtype); }

  // The elements as T*. Aborts (CHECK) if T is not the tensor's dtype; null if the tensor is
  // absent.
  template <class T>
  T* Data() const {
    CHECK(dtype == DTypeOf<T>()) << "tensor is " << Name(dtype);
    return static_cast<T*>(data);
  }

  // The same elements under another shape of the same number of elements.
  Tensor Reshaped(Shape new_shape) const {
    CHECK_EQ(new_shape.NumElements(), NumElements());
    return {data, dtype, new_shape};
  }

  // Rows [begin, begin + count) of a [rows, columns] tensor, as a view of the same memory.
  Tensor Rows(int64_t begin, int64_t count) const {
    CHECK_EQ(shape.rank(), 2);
    CHECK(begin >= 0 && count >= 0 && begin + count <= shape[0])
        << begin << "+" << count << " of " << shape[0];
    return {static_cast<char*>(data) + begin * shape[1] * SizeOf(dtype), dtype, {count, shape[1]}};
  }
};

// Mode of writing a parameter gradient: the first microbatch of a step overwrites it, later ones
// add to it.
enum class GradMode : uint8_t { kOverwrite, kAdd };

// Scratch memory for one call: at least what the op's Plan(args) or WorkspaceBytes(args) returns,
// aligned to 256 bytes. Its contents are undefined before and after the call.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

}  // namespace mt::kernels
