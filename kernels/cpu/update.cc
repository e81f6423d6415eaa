#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/update_loops.h"

namespace mt::kernels::cpu {
namespace {

// Squares are summed over blocks whose number depends on the count alone, then over the blocks.
constexpr int64_t kSumBlocks = 64;

template <class T>
AdamWScalars<T> Rounded(const AdamWArgs& a) {
  const StepScalars& s = *a.scalars;
  return {.factor = static_cast<T>(s.factor),
          .lr = static_cast<T>(s.lr),
          .weight_decay = static_cast<T>(a.decay ? s.weight_decay : 0.0),
          .beta1 = static_cast<T>(a.beta1),
          .beta2 = static_cast<T>(a.beta2),
          .one_minus_beta1 = static_cast<T>(1.0 - a.beta1),
          .one_minus_beta2 = static_cast<T>(1.0 - a.beta2),
          .correction1 = static_cast<T>(s.bias_correction1),
          .correction2 = static_cast<T>(s.bias_correction2),
          .eps = static_cast<T>(a.eps)};
}

}  // namespace

void CpuUpdate::SquareSum(Stream& /*stream*/, const SquareSumArgs& a) const {
  const int64_t n = a.gradient.NumElements();
  const int64_t blocks = std::clamp<int64_t>(n / kElementGrain, 1, kSumBlocks);
  CHECK_EQ(a.out.NumElements(), 2);
  std::array<double, 2 * kSumBlocks> sums{};
  ForFloatType(a.gradient.dtype, "SquareSum", [&](auto zero) {
    const auto* gradient = a.gradient.Data<decltype(zero)>();
    pool_->ForRanges(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = n * block / blocks;
        SquareSumRange(gradient + first, n * (block + 1) / blocks - first,
                       &sums[static_cast<size_t>(2 * block)]);
      }
    });
  });
  double* const out = a.out.Data<double>();
  for (size_t block = 0; block < kSumBlocks; ++block) {
    out[0] += sums[2 * block];
    out[1] += sums[2 * block + 1];
  }
}

void CpuUpdate::Advance(Stream& /*stream*/, StepScalars* scalars, const EndOfStep* vector,
                        const StepConstants& constants) const {
  AdvanceStepScalars(scalars, *vector, constants);
}

void CpuUpdate::AdamW(Stream& /*stream*/, const AdamWArgs& a) const {
  CHECK(!a.model_copy) << "AdamW on the CPU updates f32 and f64 weights in place";
  CHECK(a.scalars != nullptr);
  const int64_t n = a.gradient.NumElements();
  CHECK(a.master.NumElements() == n && a.m.NumElements() == n && a.v.NumElements() == n);
  if (a.scalars->skip != 0) return;
  ForFloatType(a.master.dtype, "AdamW", [&](auto zero) {
    using T = decltype(zero);
    const AdamWScalars<T> scalars = Rounded<T>(a);
    const T* gradient = a.gradient.Data<T>();
    T* const master = a.master.Data<T>();
    T* const m = a.m.Data<T>();
    T* const v = a.v.Data<T>();
    pool_->ForRanges(n, kElementGrain, [&](int64_t begin, int64_t end) {
      AdamWRange(scalars, gradient + begin, master + begin, m + begin, v + begin, end - begin);
    });
  });
}

}  // namespace mt::kernels::cpu
