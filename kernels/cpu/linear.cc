// Linear layers through OpenBLAS. f32 and f64 operands are passed as they are. 16-bit operands go
// through f32 copies in the workspace, one panel of output features at a time, which keeps the
// workspace of the output layer small.
#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/loops/vector_loops.h"
#include "kernels/cpu/staging.h"

namespace mt::kernels::cpu {
namespace {

constexpr int64_t kPanel = 4096;  // output features per panel

void CheckShapes(const Tensor& tokens_by_n, const Tensor& n_by_k, const Tensor& tokens_by_k) {
  CHECK_EQ(tokens_by_n.shape[0], tokens_by_k.shape[0]);
  CHECK_EQ(tokens_by_n.shape[1], n_by_k.shape[0]);
  CHECK_EQ(tokens_by_k.shape[1], n_by_k.shape[1]);
}

// Sizes of one call: x [tokens, k], y [tokens, n], w [n, k].
struct Sizes {
  int64_t tokens = 0, n = 0, k = 0;
  int64_t panel() const { return std::min(n, kPanel); }
};

Sizes SizesOf(const Tensor& y, const Tensor& x) {
  return {.tokens = y.shape[0], .n = y.shape[1], .k = x.shape[1]};
}

// Bytes of the f32 copies of x or dx, of a panel of y or dy and, except for a weight gradient, of a
// panel of w.
int64_t StagedBytes(DType dtype, const Sizes& z, bool with_weight) {
  if (!IsHalf(dtype)) return 0;
  return Staging::Bytes(z.tokens * z.k) + Staging::Bytes(z.tokens * z.panel()) +
         (with_weight ? Staging::Bytes(z.panel() * z.k) : 0);
}

// A whole matrix [rows, columns], and columns [first, first + count) of a [tokens, n] matrix.
template <class S>
Block<S> Whole(S* data, int64_t rows, int64_t columns) {
  return {data, columns, rows, columns};
}
template <class S>
Block<S> ColumnsOf(S* data, const Sizes& z, int64_t first, int64_t count) {
  return {data + first, z.n, z.tokens, count};
}

// Operands of a GEMM as OpenBLAS takes them; sizes.n is the panel's share of the output features.
template <class T>
struct Operands {
  const T* x = nullptr;
  const T* w = nullptr;
  const T* dy = nullptr;
  T* out = nullptr;  // y, dx or dw
  Sizes sizes;
  bool add = false;
};

// y = x w^T, added to what y holds (the bias) if `add`. OpenBLAS applies beta to C in a separate
// pass even for beta 0, so rows that are filled with the bias first and multiplied with beta 1 cost
// no more than a GEMM without bias.
template <class T>
void ForwardGemm(ThreadPool& pool, const Operands<T>& o) {
  ParallelGemm<T>(pool, {.transpose_b = true,
                         .m = o.sizes.tokens,
                         .n = o.sizes.n,
                         .k = o.sizes.k,
                         .a = o.x,
                         .lda = o.sizes.k,
                         .b = o.w,
                         .ldb = o.sizes.k,
                         .beta = o.add ? T{1} : T{0},
                         .c = o.out,
                         .ldc = o.sizes.n});
}

// dx = (add: dx +) dy w.
template <class T>
void InputGradGemm(ThreadPool& pool, const Operands<T>& o) {
  ParallelGemm<T>(pool, {.m = o.sizes.tokens,
                         .n = o.sizes.k,
                         .k = o.sizes.n,
                         .a = o.dy,
                         .lda = o.sizes.n,
                         .b = o.w,
                         .ldb = o.sizes.k,
                         .beta = o.add ? T{1} : T{0},
                         .c = o.out,
                         .ldc = o.sizes.k});
}

// dw = (add: dw +) dy^T x.
template <class T>
void WeightGradGemm(ThreadPool& pool, const Operands<T>& o) {
  ParallelGemm<T>(pool, {.transpose_a = true,
                         .m = o.sizes.n,
                         .n = o.sizes.k,
                         .k = o.sizes.tokens,
                         .a = o.dy,
                         .lda = o.sizes.n,
                         .b = o.x,
                         .ldb = o.sizes.k,
                         .beta = o.add ? T{1} : T{0},
                         .c = o.out,
                         .ldc = o.sizes.k});
}

template <class S>
void FillBias(ThreadPool& pool, const S* bias, int64_t rows, int64_t n, Compute<S>* y) {
  pool.ForRanges(rows, RowGrain(n), [&](int64_t begin, int64_t end) {
    FillRows(bias, end - begin, n, y + begin * n);
  });
}

template <class S>
void HalfForward(ThreadPool& pool, const LinearForwardArgs& a, const Sizes& z) {
  Staging staging(a.workspace);
  float* const x = staging.Take(z.tokens * z.k);
  float* const y = staging.Take(z.tokens * z.panel());
  float* const w = staging.Take(z.panel() * z.k);
  const S* bias = DataOrNull<S>(a.bias);
  ConvertRows(pool, Whole(x, z.tokens, z.k), Whole(a.x.Data<S>(), z.tokens, z.k));
  for (int64_t first = 0; first < z.n; first += kPanel) {
    const Sizes part{z.tokens, std::min(kPanel, z.n - first), z.k};
    ConvertRows(pool, Whole(w, part.n, z.k), Whole(a.w.Data<S>() + first * z.k, part.n, z.k));
    if (bias != nullptr) FillBias(pool, bias + first, z.tokens, part.n, y);
    ForwardGemm<float>(pool, {.x = x, .w = w, .out = y, .sizes = part, .add = bias != nullptr});
    ConvertRows(pool, ColumnsOf(a.y.Data<S>(), z, first, part.n), Whole(y, z.tokens, part.n));
  }
}

template <class S>
void HalfInputGrad(ThreadPool& pool, const LinearInputGradArgs& a, const Sizes& z) {
  Staging staging(a.workspace);
  float* const dx = staging.Take(z.tokens * z.k);
  float* const dy = staging.Take(z.tokens * z.panel());
  float* const w = staging.Take(z.panel() * z.k);
  for (int64_t first = 0; first < z.n; first += kPanel) {
    const Sizes part{z.tokens, std::min(kPanel, z.n - first), z.k};
    ConvertRows(pool, Whole(w, part.n, z.k), Whole(a.w.Data<S>() + first * z.k, part.n, z.k));
    ConvertRows(pool, Whole(dy, z.tokens, part.n), ColumnsOf(a.dy.Data<S>(), z, first, part.n));
    InputGradGemm<float>(pool, {.w = w, .dy = dy, .out = dx, .sizes = part, .add = first > 0});
  }
  ConvertRows(pool, Whole(a.dx.Data<S>(), z.tokens, z.k), Whole(dx, z.tokens, z.k));
}

template <class S>
void HalfWeightGrad(ThreadPool& pool, const LinearWeightGradArgs& a, const Sizes& z) {
  Staging staging(a.workspace);
  float* const x = staging.Take(z.tokens * z.k);
  float* const dy = staging.Take(z.tokens * z.panel());
  ConvertRows(pool, Whole(x, z.tokens, z.k), Whole(a.x.Data<S>(), z.tokens, z.k));
  for (int64_t first = 0; first < z.n; first += kPanel) {
    const Sizes part{z.tokens, std::min(kPanel, z.n - first), z.k};
    ConvertRows(pool, Whole(dy, z.tokens, part.n), ColumnsOf(a.dy.Data<S>(), z, first, part.n));
    WeightGradGemm<float>(pool, {.x = x,
                                 .dy = dy,
                                 .out = a.dw.Data<float>() + first * z.k,
                                 .sizes = part,
                                 .add = a.mode == GradMode::kAdd});
  }
}

}  // namespace

int64_t CpuLinear::Plan(const LinearForwardArgs& a) {
  return StagedBytes(a.x.dtype, SizesOf(a.y, a.x), true);
}

int64_t CpuLinear::Plan(const LinearInputGradArgs& a) {
  return StagedBytes(a.dy.dtype, SizesOf(a.dy, a.dx), true);
}

int64_t CpuLinear::Plan(const LinearWeightGradArgs& a) {
  return StagedBytes(a.dy.dtype, SizesOf(a.dy, a.x), false);
}

void CpuLinear::Forward(Stream& /*stream*/, const LinearForwardArgs& a) const {
  CheckShapes(a.y, a.w, a.x);
  const Sizes z = SizesOf(a.y, a.x);
  if (a.bias) CHECK_EQ(a.bias.NumElements(), z.n);
  ForFloatType(a.x.dtype, "linear Forward", [&](auto zero) {
    using S = decltype(zero);
    if constexpr (IsHalf(DTypeOf<S>())) {
      HalfForward<S>(*pool_, a, z);
    } else {
      if (a.bias) FillBias(*pool_, a.bias.Data<S>(), z.tokens, z.n, a.y.Data<S>());
      ForwardGemm<S>(*pool_, {.x = a.x.Data<S>(),
                              .w = a.w.Data<S>(),
                              .out = a.y.Data<S>(),
                              .sizes = z,
                              .add = static_cast<bool>(a.bias)});
    }
  });
}

void CpuLinear::InputGrad(Stream& /*stream*/, const LinearInputGradArgs& a) const {
  CheckShapes(a.dy, a.w, a.dx);
  const Sizes z = SizesOf(a.dy, a.dx);
  ForFloatType(a.dy.dtype, "linear InputGrad", [&](auto zero) {
    using S = decltype(zero);
    if constexpr (IsHalf(DTypeOf<S>())) {
      HalfInputGrad<S>(*pool_, a, z);
    } else {
      InputGradGemm<S>(
          *pool_, {.w = a.w.Data<S>(), .dy = a.dy.Data<S>(), .out = a.dx.Data<S>(), .sizes = z});
    }
  });
}

void CpuLinear::WeightGrad(Stream& /*stream*/, const LinearWeightGradArgs& a) const {
  CheckShapes(a.dy, a.dw, a.x);
  const Sizes z = SizesOf(a.dy, a.x);
  const bool add = a.mode == GradMode::kAdd;
  if (a.dbias) CHECK_EQ(a.dbias.NumElements(), z.n);
  ForFloatType(a.dy.dtype, "linear WeightGrad", [&](auto zero) {
    using S = decltype(zero);
    const S* dy = a.dy.Data<S>();
    if constexpr (IsHalf(DTypeOf<S>())) {
      HalfWeightGrad<S>(*pool_, a, z);
    } else {
      WeightGradGemm<S>(
          *pool_, {.x = a.x.Data<S>(), .dy = dy, .out = a.dw.Data<S>(), .sizes = z, .add = add});
    }
    if (!a.dbias) return;
    auto* const dbias = a.dbias.Data<Compute<S>>();
    const int64_t grain = std::max<int64_t>(16, RowGrain(z.tokens));
    pool_->ForRanges(z.n, grain, [&](int64_t begin, int64_t end) {
      ColumnSums(dy, {.rows = z.tokens, .stride = z.n, .begin = begin, .end = end}, add, dbias);
    });
  });
}

}  // namespace mt::kernels::cpu
