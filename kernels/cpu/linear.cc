#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/loops/vector_loops.h"

namespace mt::kernels::cpu {
namespace {

void CheckShapes(const Tensor& tokens_by_n, const Tensor& n_by_k, const Tensor& tokens_by_k) {
  CHECK_EQ(tokens_by_n.shape[0], tokens_by_k.shape[0]);
  CHECK_EQ(tokens_by_n.shape[1], n_by_k.shape[0]);
  CHECK_EQ(tokens_by_k.shape[1], n_by_k.shape[1]);
}

}  // namespace

// y = x w^T on top of the bias: OpenBLAS writes beta C in a pass of its own also for beta 0, so
// rows filled with the bias and beta 1 cost no more than rows without.
void CpuLinear::Forward(Stream& /*stream*/, const LinearForwardArgs& a) const {
  CheckShapes(a.y, a.w, a.x);
  const int64_t tokens = a.x.shape[0], k = a.x.shape[1], n = a.w.shape[0];
  ForFloatType(a.x.dtype, "linear Forward", [&](auto zero) {
    using T = decltype(zero);
    T* const y = a.y.Data<T>();
    if (a.bias) {
      CHECK_EQ(a.bias.NumElements(), n);
      const T* bias = a.bias.Data<T>();
      pool_->ForRanges(tokens, RowGrain(n), [&](int64_t begin, int64_t end) {
        FillRows(bias, end - begin, n, y + begin * n);
      });
    }
    ParallelGemm<T>(*pool_, {.transpose_b = true,
                             .m = tokens,
                             .n = n,
                             .k = k,
                             .a = a.x.Data<T>(),
                             .lda = k,
                             .b = a.w.Data<T>(),
                             .ldb = k,
                             .beta = a.bias ? T{1} : T{0},
                             .c = y,
                             .ldc = n});
  });
}

void CpuLinear::InputGrad(Stream& /*stream*/, const LinearInputGradArgs& a) const {
  CheckShapes(a.dy, a.w, a.dx);
  const int64_t tokens = a.dy.shape[0], n = a.w.shape[0], k = a.w.shape[1];
  ForFloatType(a.dy.dtype, "linear InputGrad", [&](auto zero) {
    using T = decltype(zero);
    ParallelGemm<T>(*pool_, {.m = tokens,
                             .n = k,
                             .k = n,
                             .a = a.dy.Data<T>(),
                             .lda = n,
                             .b = a.w.Data<T>(),
                             .ldb = k,
                             .c = a.dx.Data<T>(),
                             .ldc = k});
  });
}

void CpuLinear::WeightGrad(Stream& /*stream*/, const LinearWeightGradArgs& a) const {
  CheckShapes(a.dy, a.dw, a.x);
  const int64_t tokens = a.dy.shape[0], n = a.dw.shape[0], k = a.dw.shape[1];
  ForFloatType(a.dy.dtype, "linear WeightGrad", [&](auto zero) {
    using T = decltype(zero);
    const bool add = a.mode == GradMode::kAdd;
    ParallelGemm<T>(*pool_, {.transpose_a = true,
                             .m = n,
                             .n = k,
                             .k = tokens,
                             .a = a.dy.Data<T>(),
                             .lda = n,
                             .b = a.x.Data<T>(),
                             .ldb = k,
                             .beta = add ? T{1} : T{0},
                             .c = a.dw.Data<T>(),
                             .ldc = k});
    if (!a.dbias) return;
    CHECK_EQ(a.dbias.NumElements(), n);
    const T* dy = a.dy.Data<T>();
    T* const dbias = a.dbias.Data<T>();
    pool_->ForRanges(n, std::max<int64_t>(16, RowGrain(tokens)), [&](int64_t begin, int64_t end) {
      ColumnSums(dy, {.rows = tokens, .stride = n, .begin = begin, .end = end}, add, dbias);
    });
  });
}

}  // namespace mt::kernels::cpu
