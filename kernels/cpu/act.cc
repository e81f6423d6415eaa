#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/act_loops.h"

namespace mt::kernels::cpu {

void CpuAct::Act(Stream& /*stream*/, const ActArgs& a) const {
  CHECK(a.kind == ActKind::kGelu);
  const int64_t n = a.pre.NumElements();
  CHECK_EQ(a.y.NumElements(), n);
  ForFloatType(a.pre.dtype, "Act", [&](auto zero) {
    using T = decltype(zero);
    const T* pre = a.pre.Data<T>();
    T* const y = a.y.Data<T>();
    pool_->ForRanges(n, kElementGrain, [&](int64_t begin, int64_t end) {
      GeluRange(pre + begin, y + begin, end - begin);
    });
  });
}

void CpuAct::ActGrad(Stream& /*stream*/, const ActGradArgs& a) const {
  CHECK(a.kind == ActKind::kGelu);
  const int64_t n = a.pre.NumElements();
  CHECK(a.dy.NumElements() == n && a.dpre.NumElements() == n);
  ForFloatType(a.pre.dtype, "ActGrad", [&](auto zero) {
    using T = decltype(zero);
    const T* dy = a.dy.Data<T>();
    const T* pre = a.pre.Data<T>();
    T* const dpre = a.dpre.Data<T>();
    pool_->ForRanges(n, kElementGrain, [&](int64_t begin, int64_t end) {
      GeluGradRange(dy + begin, pre + begin, dpre + begin, end - begin);
    });
  });
}

}  // namespace mt::kernels::cpu
