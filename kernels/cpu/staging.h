// Operands of 16-bit GEMMs as f32 matrices in the call's workspace. OpenBLAS multiplies f32 and f64
// only, so a GEMM of bf16 or f16 matrices widens its operands and rounds its result once. f32
// and f64 operands are multiplied in place and need no staging.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/base/check.h"
#include "common/base/math.h"
#include "kernels/core/tensor.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/vector_loops.h"
#include "kernels/cpu/thread_pool.h"

namespace mt::kernels::cpu {

constexpr bool IsHalf(DType dtype) { return SizeOf(dtype) == 2; }

// Hands out parts of a workspace one after another, each aligned to 256 bytes; aborts (CHECK) if
// the workspace is too small.
class Staging {
 public:
  explicit Staging(const Workspace& workspace) : workspace_(workspace) {}

  // Bytes of a part that holds `count` floats.
  static constexpr int64_t Bytes(int64_t count) {
    return base::RoundUp(count * static_cast<int64_t>(sizeof(float)), 256);
  }
  float* Take(int64_t count) {
    auto* const out = reinterpret_cast<float*>(static_cast<char*>(workspace_.data) + taken_);
    taken_ += Bytes(count);
    CHECK_LE(taken_, workspace_.bytes);
    return out;
  }

 private:
  const Workspace workspace_;
  int64_t taken_ = 0;
};

// to = from with conversion; the rows are split over the pool's threads.
template <class To, class From>
void ConvertRows(ThreadPool& pool, const Block<To>& to, const Block<From>& from) {
  pool.ForRanges(to.rows, RowGrain(to.n), [&](int64_t begin, int64_t end) {
    ConvertBlock<To, std::remove_const_t<From>>(
        {to.data + begin * to.stride, to.stride, end - begin, to.n},
        {from.data + begin * from.stride, from.stride, end - begin, to.n});
  });
}

}  // namespace mt::kernels::cpu
