// The optimizer's part of a step: checks, and the split of flat shards over threads. Step scalars
// are fp64 and are rounded to the shard's type once per call.
#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/update_loops.h"
#include "kernels/cpu/loops/vector_loops.h"

namespace mt::kernels::cpu {
namespace {

// Blocks over which squares are summed first; their number depends on the element count alone.
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

template <class T>
SgdScalars<T> Rounded(const SgdArgs& a) {
  const StepScalars& s = *a.scalars;
  return {.factor = static_cast<T>(s.factor),
          .lr = static_cast<T>(s.lr),
          .weight_decay = static_cast<T>(a.decay ? s.weight_decay : 0.0),
          .mu = static_cast<T>(a.mu)};
}

// Calls update(begin, count) for pieces of the master in parallel, and rounds each piece into the
// model's copy while it is in the cache.
template <class T, class Update>
void ForUpdated(ThreadPool& pool, const Tensor& master, const Tensor& copy, const Update& update) {
  constexpr int64_t kPiece = 4096;
  if (copy) CHECK_EQ(copy.NumElements(), master.NumElements());
  const T* weights = master.Data<T>();
  pool.ForRanges(master.NumElements(), kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t count = std::min(kPiece, end - at);
      update(at, count);
      if (!copy) continue;
      ForFloatType(copy.dtype, "model copy", [&](auto zero) {
        using S = decltype(zero);
        if constexpr (SizeOf(DTypeOf<S>()) == 2) {
          ConvertRange(copy.Data<S>() + at, weights + at, count);
        } else {
          CHECK(false) << "a model copy is bf16 or f16, not " << Name(copy.dtype);
        }
      });
    }
  });
}

}  // namespace

void CpuUpdate::SquareSum(Stream& /*stream*/, const SquareSumArgs& a) const {
  const int64_t n = a.gradient.NumElements();
  const int64_t blocks = std::clamp<int64_t>(n / kElementGrain, 1, kSumBlocks);
  CHECK_EQ(a.out.NumElements(), 2);
  std::array<double, 2 * kSumBlocks> sums{};
  ForAccumulatorType(a.gradient.dtype, "SquareSum", [&](auto zero) {
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
  CHECK(a.scalars != nullptr);
  const int64_t n = a.gradient.NumElements();
  CHECK(a.master.NumElements() == n && a.m.NumElements() == n && a.v.NumElements() == n);
  if (a.scalars->skip != 0) return;
  ForAccumulatorType(a.master.dtype, "AdamW", [&](auto zero) {
    using T = decltype(zero);
    const AdamWScalars<T> scalars = Rounded<T>(a);
    const T* gradient = a.gradient.Data<T>();
    T* const master = a.master.Data<T>();
    T* const m = a.m.Data<T>();
    T* const v = a.v.Data<T>();
    ForUpdated<T>(*pool_, a.master, a.model_copy, [&](int64_t begin, int64_t count) {
      AdamWRange(scalars, gradient + begin, master + begin, m + begin, v + begin, count);
    });
  });
}

void CpuUpdate::Sgd(Stream& /*stream*/, const SgdArgs& a) const {
  CHECK(a.scalars != nullptr);
  const int64_t n = a.gradient.NumElements();
  CHECK_EQ(a.master.NumElements(), n);
  CHECK(a.momentum ? a.momentum.NumElements() == n : a.mu == 0) << "momentum " << a.mu;
  if (a.scalars->skip != 0) return;
  ForAccumulatorType(a.master.dtype, "Sgd", [&](auto zero) {
    using T = decltype(zero);
    const SgdScalars<T> scalars = Rounded<T>(a);
    const T* gradient = a.gradient.Data<T>();
    T* const master = a.master.Data<T>();
    T* const momentum = DataOrNull<T>(a.momentum);
    ForUpdated<T>(*pool_, a.master, a.model_copy, [&](int64_t begin, int64_t count) {
      SgdRange(scalars, gradient + begin, master + begin,
               momentum == nullptr ? nullptr : momentum + begin, count);
    });
  });
}

}  // namespace mt::kernels::cpu
