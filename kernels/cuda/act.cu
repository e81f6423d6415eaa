// The activations as elementwise loops, with the CPU backend's formulas
// (kernels/cpu/loops/act_loops.cc): gelu and silu are x / (1 + e), e = e^(-z), so each costs one
// exponential and one division without cancellation; the exact form of gelu takes the normal
// distribution's tail.
#include "kernels/core/normal_tail.h"
#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/gelu.cuh"

namespace mt::kernels::cuda {
namespace {

struct Gelu {
  static __device__ __forceinline__ float Exponential(float x) { return expf(GeluMinusZ(x, 1.0F)); }
  static __device__ __forceinline__ float Slope(float x, float e, float s) {
    return s + x * s * (e * s) * GeluInnerSlope(x);
  }
};

struct Silu {
  static __device__ __forceinline__ float Exponential(float x) { return expf(-x); }
  static __device__ __forceinline__ float Slope(float x, float e, float s) {
    return s + x * s * (e * s);
  }
};

// Value and derivative of one element.
template <class Smooth>
struct SmoothAct {
  static __device__ __forceinline__ float Value(float x) {
    return x / (1.0F + Smooth::Exponential(x));
  }
  static __device__ __forceinline__ float Slope(float x) {
    const float e = Smooth::Exponential(x), s = 1.0F / (1.0F + e);
    // For very negative x, e overflows; the limit of the slope is 0.
    return s == 0.0F ? 0.0F : Smooth::Slope(x, e, s);
  }
};

struct Relu2 {
  static __device__ __forceinline__ float Relu(float x) { return x < 0.0F ? 0.0F : x; }
  static __device__ __forceinline__ float Value(float x) { return Relu(x) * Relu(x); }
  static __device__ __forceinline__ float Slope(float x) { return 2.0F * Relu(x); }
};

struct GeluErf {
  // e^(-x^2 / 2), and Phi(-|x|).
  struct Tail {
    float exponential, probability;
  };
  static __device__ __forceinline__ Tail TailAt(float x) {
    const float e = expf(-0.5F * x * x);
    return {e, NormalTailOverDensity(1.0F / fmaf(kNormalTailRate, fabsf(x), 1.0F)) * e};
  }
  static __device__ __forceinline__ float Value(float x) {
    return fmaf(-fabsf(x), TailAt(x).probability, Relu2::Relu(x));
  }
  static __device__ __forceinline__ float Slope(float x) {
    constexpr float kOneOverRootTwoPi = 0.3989422804F;
    const Tail tail = TailAt(x);
    const float below = x < 0.0F ? tail.probability : 1.0F - tail.probability;
    return fmaf(x * kOneOverRootTwoPi, tail.exponential, below);
  }
};

template <class S, class Function>
struct ActOp {
  const S* pre;
  S* y;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    Float8 x = Load<kAccess>(pre + first, count);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] = Function::Value(x.v[i]);
    Store<kAccess>(x, y + first, count);
  }
};

template <class S, class Function>
struct ActGradOp {
  const S *dy, *pre;
  S* dpre;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    const Float8 x = Load<kAccess>(pre + first, count);
    Float8 d = Load<kAccess>(dy + first, count);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) d.v[i] *= Function::Slope(x.v[i]);
    Store<kAccess>(d, dpre + first, count);
  }
};

// Gated kinds: the rows of pre are [gate (n), up (n)]. Groups of eight never cross a row: with
// kVector n is a multiple of eight, and otherwise elements are processed one by one.
template <class S, class Function>
struct GatedOp {
  const S* pre;  // [rows, 2 n]
  S* y;          // [rows, n]
  int64_t n;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    if constexpr (kAccess == Access::kVector) {
      Group<kAccess>(first, count);
    } else {
      for (int i = 0; i < count; ++i) Group<kAccess>(first + i, 1);
    }
  }
  template <Access kAccess>
  __device__ __forceinline__ void Group(int64_t at, int count) const {
    const int64_t row = at / n, c = at % n;
    Float8 x = Load<kAccess>(pre + row * 2 * n + c, count);
    const Float8 up = Load<kAccess>(pre + row * 2 * n + n + c, count);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] = Function::Value(x.v[i]) * up.v[i];
    Store<kAccess>(x, y + at, count);
  }
};

template <class S, class Function>
struct GatedGradOp {
  const S *dy, *pre;
  S* dpre;
  int64_t n;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    if constexpr (kAccess == Access::kVector) {
      Group<kAccess>(first, count);
    } else {
      for (int i = 0; i < count; ++i) Group<kAccess>(first + i, 1);
    }
  }
  template <Access kAccess>
  __device__ __forceinline__ void Group(int64_t at, int count) const {
    const int64_t row = at / n, c = at % n;
    const int64_t gate_at = row * 2 * n + c, up_at = gate_at + n;
    const Float8 d = Load<kAccess>(dy + at, count);
    const Float8 gate = Load<kAccess>(pre + gate_at, count), up = Load<kAccess>(pre + up_at, count);
    Float8 dgate, dup;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      dgate.v[i] = d.v[i] * up.v[i] * Function::Slope(gate.v[i]);
      dup.v[i] = d.v[i] * Function::Value(gate.v[i]);
    }
    Store<kAccess>(dgate, dpre + gate_at, count);
    Store<kAccess>(dup, dpre + up_at, count);
  }
};

template <class S>
void RunAct(const Stream& stream, const ActArgs& a) {
  const int64_t n = a.y.shape[1], elements = a.y.NumElements();
  const bool aligned = IsAligned16(a.pre.data) && IsAligned16(a.y.data);
  const bool rows_aligned = aligned && n % kGroup == 0;
  const S* pre = a.pre.Data<S>();
  S* const y = a.y.Data<S>();
  switch (a.kind) {
    case ActKind::kGelu:
      return LaunchElementwise(stream, ActOp<S, SmoothAct<Gelu>>{pre, y}, elements, aligned, "Act");
    case ActKind::kRelu2:
      return LaunchElementwise(stream, ActOp<S, Relu2>{pre, y}, elements, aligned, "Act");
    case ActKind::kGeluErf:
      return LaunchElementwise(stream, ActOp<S, GeluErf>{pre, y}, elements, aligned, "Act");
    case ActKind::kSwiglu:
      return LaunchElementwise(stream, GatedOp<S, SmoothAct<Silu>>{pre, y, n}, elements,
                               rows_aligned, "Act");
    case ActKind::kGeglu:
      return LaunchElementwise(stream, GatedOp<S, SmoothAct<Gelu>>{pre, y, n}, elements,
                               rows_aligned, "Act");
  }
}

template <class S>
void RunActGrad(const Stream& stream, const ActGradArgs& a) {
  const int64_t n = a.dy.shape[1], elements = a.dy.NumElements();
  const bool aligned =
      IsAligned16(a.pre.data) && IsAligned16(a.dy.data) && IsAligned16(a.dpre.data);
  const bool rows_aligned = aligned && n % kGroup == 0;
  const S *dy = a.dy.Data<S>(), *pre = a.pre.Data<S>();
  S* const dpre = a.dpre.Data<S>();
  switch (a.kind) {
    case ActKind::kGelu:
      return LaunchElementwise(stream, ActGradOp<S, SmoothAct<Gelu>>{dy, pre, dpre}, elements,
                               aligned, "ActGrad");
    case ActKind::kRelu2:
      return LaunchElementwise(stream, ActGradOp<S, Relu2>{dy, pre, dpre}, elements, aligned,
                               "ActGrad");
    case ActKind::kGeluErf:
      return LaunchElementwise(stream, ActGradOp<S, GeluErf>{dy, pre, dpre}, elements, aligned,
                               "ActGrad");
    case ActKind::kSwiglu:
      return LaunchElementwise(stream, GatedGradOp<S, SmoothAct<Silu>>{dy, pre, dpre, n}, elements,
                               rows_aligned, "ActGrad");
    case ActKind::kGeglu:
      return LaunchElementwise(stream, GatedGradOp<S, SmoothAct<Gelu>>{dy, pre, dpre, n}, elements,
                               rows_aligned, "ActGrad");
  }
}

}  // namespace

void CudaAct::Act(Stream& stream, const ActArgs& a) const {
  CHECK_EQ(a.pre.shape[0], a.y.shape[0]);
  CHECK_EQ(a.pre.shape[1], PreColumns(a.kind, a.y.shape[1]));
  ForGpuType(a.y.dtype, "Act", [&](auto zero) { RunAct<decltype(zero)>(stream, a); });
}

void CudaAct::ActGrad(Stream& stream, const ActGradArgs& a) const {
  CHECK_EQ(a.pre.shape[0], a.dy.shape[0]);
  CHECK_EQ(a.pre.shape[1], PreColumns(a.kind, a.dy.shape[1]));
  CHECK_EQ(a.dpre.NumElements(), a.pre.NumElements());
  ForGpuType(a.dy.dtype, "ActGrad", [&](auto zero) { RunActGrad<decltype(zero)>(stream, a); });
}

}  // namespace mt::kernels::cuda
