// Activations: checks, and the split of elements (or, for gated kinds, of rows) over threads. The
// formulas are in loops/act_loops.cc.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/act_loops.h"

namespace mt::kernels::cpu {
namespace {

template <class S>
auto RangeOf(ActKind kind) {
  switch (kind) {
    case ActKind::kGelu:
      return GeluRange<S>;
    case ActKind::kGeluErf:
      return GeluErfRange<S>;
    default:
      CHECK(kind == ActKind::kRelu2);
      return Relu2Range<S>;
  }
}

template <class S>
auto GradRangeOf(ActKind kind) {
  switch (kind) {
    case ActKind::kGelu:
      return GeluGradRange<S>;
    case ActKind::kGeluErf:
      return GeluErfGradRange<S>;
    default:
      CHECK(kind == ActKind::kRelu2);
      return Relu2GradRange<S>;
  }
}

template <class S>
void ActElements(ThreadPool& pool, const ActArgs& a) {
  const S* pre = a.pre.Data<S>();
  S* const y = a.y.Data<S>();
  const auto range = RangeOf<S>(a.kind);
  pool.ForRanges(a.y.NumElements(), kElementGrain,
                 [&](int64_t begin, int64_t end) { range(pre + begin, y + begin, end - begin); });
}

template <class S>
void ActGradElements(ThreadPool& pool, const ActGradArgs& a) {
  const S* dy = a.dy.Data<S>();
  const S* pre = a.pre.Data<S>();
  S* const dpre = a.dpre.Data<S>();
  const auto range = GradRangeOf<S>(a.kind);
  pool.ForRanges(a.dy.NumElements(), kElementGrain, [&](int64_t begin, int64_t end) {
    range(dy + begin, pre + begin, dpre + begin, end - begin);
  });
}

template <class S>
void GatedRows(ThreadPool& pool, const ActArgs& a) {
  const int64_t n = a.y.shape[1];
  const S* pre = a.pre.Data<S>();
  S* const y = a.y.Data<S>();
  const auto range = a.kind == ActKind::kSwiglu ? SwigluRange<S> : GegluRange<S>;
  pool.ForRanges(a.y.shape[0], RowGrain(n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const S* gate = pre + row * 2 * n;
      range(gate, gate + n, y + row * n, n);
    }
  });
}

template <class S>
void GatedGradRows(ThreadPool& pool, const ActGradArgs& a) {
  const int64_t n = a.dy.shape[1];
  const S* dy = a.dy.Data<S>();
  const S* pre = a.pre.Data<S>();
  S* const dpre = a.dpre.Data<S>();
  const auto range = a.kind == ActKind::kSwiglu ? SwigluGradRange<S> : GegluGradRange<S>;
  pool.ForRanges(a.dy.shape[0], RowGrain(n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const S* gate = pre + row * 2 * n;
      S* const dgate = dpre + row * 2 * n;
      range({.dy = dy + row * n, .gate = gate, .up = gate + n, .dgate = dgate, .dup = dgate + n},
            n);
    }
  });
}

}  // namespace

void CpuAct::Act(Stream& /*stream*/, const ActArgs& a) const {
  CHECK_EQ(a.pre.NumElements(), PreColumns(a.kind, a.y.NumElements()));
  ForFloatType(a.pre.dtype, "Act", [&](auto zero) {
    using S = decltype(zero);
    IsGated(a.kind) ? GatedRows<S>(*pool_, a) : ActElements<S>(*pool_, a);
  });
}

void CpuAct::ActGrad(Stream& /*stream*/, const ActGradArgs& a) const {
  CHECK_EQ(a.pre.NumElements(), PreColumns(a.kind, a.dy.NumElements()));
  CHECK_EQ(a.dpre.NumElements(), a.pre.NumElements());
  CHECK(!IsGated(a.kind) || a.dpre.data != a.dy.data) << "a gate's dpre is no buffer of dy";
  ForFloatType(a.pre.dtype, "ActGrad", [&](auto zero) {
    using S = decltype(zero);
    IsGated(a.kind) ? GatedGradRows<S>(*pool_, a) : ActGradElements<S>(*pool_, a);
  });
}

}  // namespace mt::kernels::cpu
