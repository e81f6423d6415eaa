// A bump pointer with 256-byte granularity. The measuring arena is the same code with unlimited
// capacity and addresses counted from kAlignBytes, so both modes make the same decisions.
#include "worker/memory/stack_arena.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/base/math.h"

namespace mt::memory {

StackArena StackArena::Measuring() {
  StackArena arena;
  arena.measuring_ = true;
  arena.capacity_ = std::numeric_limits<int64_t>::max() / 2;
  return arena;
}

StackArena::StackArena(void* data, int64_t bytes)
    : data_(static_cast<char*>(data)), capacity_(bytes) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(data) % kAlignBytes, 0U);
}

void* StackArena::TakeBytes(int64_t bytes) {
  CHECK_GE(bytes, 0);
  const int64_t begin = used_;
  used_ += base::RoundUp(bytes, kAlignBytes);
  CHECK_LE(used_, capacity_) << "the plan reserved less than the step takes";
  peak_ = std::max(peak_, used_);
  // Not null, so that ops see the operand as present when they compute their workspace size.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address to compare, never to dereference
  if (measuring_) return reinterpret_cast<void*>(static_cast<uintptr_t>(kAlignBytes + begin));
  return data_ + begin;
}

kernels::Tensor StackArena::Take(kernels::DType dtype, const kernels::Shape& shape) {
  return {TakeBytes(shape.NumElements() * kernels::SizeOf(dtype)), dtype, shape};
}

kernels::Workspace StackArena::TakeWorkspace(int64_t bytes) {
  return {.data = TakeBytes(bytes), .bytes = bytes};
}

void StackArena::Release(int64_t mark) {
  CHECK(mark >= 0 && mark <= used_) << mark << " of " << used_;
  used_ = mark;
}

}  // namespace mt::memory
