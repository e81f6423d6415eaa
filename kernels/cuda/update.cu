// The optimizer's part of a step on flat shards. The step's scalars are read from device memory, so
// the host never waits for them.
#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/reduce.cuh"

namespace mt::kernels::cuda {
namespace {

constexpr int kSumThreads = 512;

// Sum of squares of the finite elements and number of the others in this block's share, in fp64:
// partials[blockIdx.x] = {sum, count}. A grid-stride loop over 8 elements per thread. 512 threads.
template <bool kAligned>
__global__ void __launch_bounds__(kSumThreads)
    SquareSumKernel(const float* gradient, int64_t n, double* partials) {
  __shared__ double shared[kWarp];
  LetNextKernelBegin();
  WaitForKernelBefore();
  double sum = 0, bad = 0;
  const int64_t step = int64_t{gridDim.x} * kSumThreads * kGroup;
  for (int64_t at = (int64_t{blockIdx.x} * kSumThreads + threadIdx.x) * kGroup; at < n;
       at += step) {
    const int count = static_cast<int>(min(n - at, int64_t{kGroup}));
    const Float8 g = kAligned && count == kGroup ? Load<Access::kVector>(gradient + at, kGroup)
                                                 : Load<Access::kElements>(gradient + at, count);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const bool finite = isfinite(g.v[i]);
      const double x = finite ? static_cast<double>(g.v[i]) : 0.0;
      sum += x * x;
      bad += finite ? 0.0 : 1.0;
    }
  }
  sum = BlockSum(sum, shared);
  bad = BlockSum(bad, shared);
  if (threadIdx.x == 0) {
    partials[2 * blockIdx.x] = sum;
    partials[2 * blockIdx.x + 1] = bad;
  }
}

// out[k] += sum over blocks of partials[block][k], k = 0, 1. One block of 64 threads, one warp for
// each k.
__global__ void AddPairsKernel(const double* partials, int blocks, double* out) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int k = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  double sum = 0;
  for (int b = lane; b < blocks; b += kWarp) sum += partials[2 * b + k];
  sum = WarpSum(sum);
  if (lane == 0) out[k] += sum;
}

__global__ void AdvanceKernel(StepScalars* scalars, const EndOfStep* vector,
                              const StepConstants constants) {
  AdvanceStepScalars(scalars, *vector, constants);
}

// S is the type of the model's copy; float if there is none.
template <class S>
struct AdamWOp {
  const float* gradient;
  float *master, *m, *v;
  S* copy;
  float decay, beta1, beta2, one_minus_beta1, one_minus_beta2, eps;
  const StepScalars* scalars;

  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    if (scalars->skip != 0) return;
    const auto factor = static_cast<float>(scalars->factor), lr = static_cast<float>(scalars->lr);
    const float weight_decay = decay * static_cast<float>(scalars->weight_decay);
    const auto correction1 = static_cast<float>(scalars->bias_correction1);
    const auto correction2 = static_cast<float>(scalars->bias_correction2);
    const Float8 raw = Load<kAccess>(gradient + first, count);
    Float8 p = Load<kAccess>(master + first, count);
    Float8 m8 = Load<kAccess>(m + first, count), v8 = Load<kAccess>(v + first, count);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float g = raw.v[i] * factor;
      m8.v[i] = beta1 * m8.v[i] + one_minus_beta1 * g;
      v8.v[i] = beta2 * v8.v[i] + one_minus_beta2 * g * g;
      const float step =
          (m8.v[i] / correction1) / (sqrtf(v8.v[i] / correction2) + eps) + weight_decay * p.v[i];
      p.v[i] -= lr * step;
    }
    Store<kAccess>(m8, m + first, count);
    Store<kAccess>(v8, v + first, count);
    Store<kAccess>(p, master + first, count);
    if (copy != nullptr) Store<kAccess>(p, copy + first, count);
  }
};

template <class S>
struct SgdOp {
  const float* gradient;
  float *master, *momentum;  // momentum is null if mu is 0
  S* copy;
  float decay, mu;
  const StepScalars* scalars;

  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    if (scalars->skip != 0) return;
    const auto factor = static_cast<float>(scalars->factor), lr = static_cast<float>(scalars->lr);
    const float weight_decay = decay * static_cast<float>(scalars->weight_decay);
    Float8 u = Load<kAccess>(gradient + first, count);
    Float8 p = Load<kAccess>(master + first, count);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) u.v[i] *= factor;
    if (momentum != nullptr) {
      const Float8 old = Load<kAccess>(momentum + first, count);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) u.v[i] += mu * old.v[i];
      Store<kAccess>(u, momentum + first, count);
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) p.v[i] -= lr * (u.v[i] + weight_decay * p.v[i]);
    Store<kAccess>(p, master + first, count);
    if (copy != nullptr) Store<kAccess>(p, copy + first, count);
  }
};

// Calls body(S{}) with the type of the model's copy; float if there is none.
template <class Body>
void ForCopyType(const Tensor& master, const Tensor& copy, const char* op, const Body& body) {
  CHECK(master.dtype == DType::kF32)
      << op << " on a GPU has an f32 master, not " << Name(master.dtype);
  if (!copy) return body(float{});
  CHECK_EQ(copy.NumElements(), master.NumElements());
  CHECK(SizeOf(copy.dtype) == 2) << "a model copy is bf16 or f16, not " << Name(copy.dtype);
  ForGpuType(copy.dtype, op, body);
}

}  // namespace

void CudaUpdate::SquareSum(Stream& stream, const SquareSumArgs& a) const {
  CHECK_EQ(a.out.NumElements(), 2);
  CHECK(a.gradient.dtype == DType::kF32) << "SquareSum on a GPU takes f32";
  const int64_t n = a.gradient.NumElements();
  const CudaStream& cuda_stream = CudaStreamOf(stream);
  auto* const partials = static_cast<double*>(cuda_stream.scratch());
  const int64_t blocks =
      std::clamp<int64_t>(base::CeilDiv(n, int64_t{kSumThreads} * kGroup), 1, 4 * limits_.num_sms);
  const auto kernel = IsAligned16(a.gradient.data) ? SquareSumKernel<true> : SquareSumKernel<false>;
  LaunchDependent(stream, kernel, {static_cast<unsigned>(blocks), kSumThreads},
                  a.gradient.Data<float>(), n, partials);
  CheckLaunch("SquareSum");
  LaunchDependent(stream, AddPairsKernel, {1, 2 * kWarp}, partials, static_cast<int>(blocks),
                  a.out.Data<double>());
  CheckLaunch("SquareSum");
}

void CudaUpdate::Advance(Stream& stream, StepScalars* scalars, const EndOfStep* vector,
                         const StepConstants& constants) const {
  AdvanceKernel<<<1, 1, 0, Raw(stream)>>>(scalars, vector, constants);
  CheckLaunch("Advance");
}

void CudaUpdate::AdamW(Stream& stream, const AdamWArgs& a) const {
  CHECK(a.scalars != nullptr);
  const int64_t n = a.gradient.NumElements();
  CHECK(a.master.NumElements() == n && a.m.NumElements() == n && a.v.NumElements() == n);
  const bool aligned = IsAligned16(a.gradient.data) && IsAligned16(a.master.data) &&
                       IsAligned16(a.m.data) && IsAligned16(a.v.data) &&
                       IsAligned16(a.model_copy.data);
  ForCopyType(a.master, a.model_copy, "AdamW", [&](auto zero) {
    using S = decltype(zero);
    const AdamWOp<S> op{.gradient = a.gradient.Data<float>(),
                        .master = a.master.Data<float>(),
                        .m = a.m.Data<float>(),
                        .v = a.v.Data<float>(),
                        .copy = DataOrNull<S>(a.model_copy),
                        .decay = a.decay ? 1.0F : 0.0F,
                        .beta1 = static_cast<float>(a.beta1),
                        .beta2 = static_cast<float>(a.beta2),
                        .one_minus_beta1 = static_cast<float>(1.0 - a.beta1),
                        .one_minus_beta2 = static_cast<float>(1.0 - a.beta2),
                        .eps = static_cast<float>(a.eps),
                        .scalars = a.scalars};
    LaunchElementwise(stream, op, n, aligned, "AdamW");
  });
}

void CudaUpdate::Sgd(Stream& stream, const SgdArgs& a) const {
  CHECK(a.scalars != nullptr);
  const int64_t n = a.gradient.NumElements();
  CHECK_EQ(a.master.NumElements(), n);
  CHECK(a.momentum ? a.momentum.NumElements() == n : a.mu == 0) << "momentum " << a.mu;
  const bool aligned = IsAligned16(a.gradient.data) && IsAligned16(a.master.data) &&
                       IsAligned16(a.momentum.data) && IsAligned16(a.model_copy.data);
  ForCopyType(a.master, a.model_copy, "Sgd", [&](auto zero) {
    using S = decltype(zero);
    const SgdOp<S> op{.gradient = a.gradient.Data<float>(),
                      .master = a.master.Data<float>(),
                      .momentum = DataOrNull<float>(a.momentum),
                      .copy = DataOrNull<S>(a.model_copy),
                      .decay = a.decay ? 1.0F : 0.0F,
                      .mu = static_cast<float>(a.mu),
                      .scalars = a.scalars};
    LaunchElementwise(stream, op, n, aligned, "Sgd");
  });
}

}  // namespace mt::kernels::cuda
