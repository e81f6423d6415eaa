// Attention of the CUDA backend: calls through cuDNN against its bare plan, and the custom kernels
// against cuDNN.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "kernels/bench/gpu_op_benches.h"

namespace mt::kernels::bench {
namespace {

double RealOf(int64_t n) { return static_cast<double>(n); }

constexpr double kPlanBar = 0.97;        // fraction of the rate of cuDNN's bare plan
constexpr double kCustomHalfBar = 0.25;  // fraction of cuDNN's rate
constexpr double kCustomFp32Bar = 8e12;  // FLOP/s

}  // namespace

// A recording of the call contains only the kernels of the plan: no host time of ours or of
// cuDNN's. Both alternate, because the clocks move by several percent within a second of such load,
// which a ratio of neighbours does not show.
void GpuOpBenches::AgainstItsPlan(const std::string& name, const Work& work) {
  if (!Wanted(name)) return;
  constexpr int kCalls = 16;
  std::string why_not;
  work();
  const auto plan = backend_.device().Record(
      *stream_,
      [&] {
        for (int i = 0; i < kCalls; ++i) work();
      },
      &why_not);
  if (plan == nullptr) {
    fmt::print("{}: {}\n", name, why_not);
    return;
  }
  const Work launch = [&] { plan->Launch(*stream_); };
  const int calls = CallsOfABatch(work), launches = CallsOfABatch(launch);
  std::array<double, 15> ratios{};
  for (size_t turn = 0; turn < ratios.size(); ++turn) {
    const double before = SecondsPerCall(launch, launches) / kCalls;
    const double called = SecondsPerCall(work, calls);
    const double after = SecondsPerCall(launch, launches) / kCalls;
    ratios[turn] = (before + after) / 2 / called;
  }
  std::sort(ratios.begin(), ratios.end());
  const double ratio = ratios[ratios.size() / 2];
  fmt::print("{:<58} {:>5.3f} of the bare plan's rate ({:.3f} to {:.3f})", name, ratio,
             ratios.front(), ratios.back());
  Judge(ratio, kPlanBar, fmt::format("{}", kPlanBar));
}

// Prints one forward and one backward line. `custom`: zero ALiBi slopes, which only the custom
// kernels accept.
GpuOpBenches::AttentionRates GpuOpBenches::AttentionPair(const AttentionBench& z, DType dtype,
                                                         bool custom, const AttentionRates& bars) {
  const int64_t width = z.a * z.d, rows = z.s * z.b;
  const Tensor qkv = Make({rows, 3 * width}, dtype), o = Make({rows, width}, dtype);
  const Tensor dqkv = Make({rows, 3 * width}, dtype), dout = Make({rows, width}, dtype);
  const Tensor lse = Make({z.b, z.a, z.s}, DType::kF32), slopes = Make({z.a}, DType::kF32);
  backend_.vector().Fill(*stream_, slopes, 0);
  const auto view = [&](const Tensor& x, int64_t part, int64_t parts) {
    return HeadView{static_cast<char*>(x.data) + part * width * SizeOf(dtype), z.b * parts * width,
                    parts * width, z.d};
  };
  AttentionForwardArgs forward{.shape = {.dtype = dtype,
                                         .s = z.s,
                                         .b = z.b,
                                         .a = z.a,
                                         .g = z.a,
                                         .d = z.d,
                                         .scale = 1 / std::sqrt(RealOf(z.d)),
                                         .slopes = custom ? slopes : Tensor{}},
                               .q = view(qkv, 0, 3),
                               .k = view(qkv, 1, 3),
                               .v = view(qkv, 2, 3),
                               .o = view(o, 0, 1),
                               .lse = lse};
  forward.workspace = Scratch(backend_.attention().Plan(forward));
  AttentionGradArgs grad{.shape = forward.shape,
                         .q = forward.q,
                         .k = forward.k,
                         .v = forward.v,
                         .o = forward.o,
                         .lse = lse,
                         .do_ = view(dout, 0, 1),
                         .dq = view(dqkv, 0, 3),
                         .dk = view(dqkv, 1, 3),
                         .dv = view(dqkv, 2, 3),
                         .deterministic = false};
  grad.workspace = Scratch(backend_.attention().Plan(grad));
  // Two matrix products over the causal half of [s, s]; five in backward.
  const double flops = 2.0 * RealOf(z.b * z.a * z.s) * RealOf(z.s * z.d);
  const std::string shape = fmt::format(" {} b {} s {} a {} d {}{}", Name(dtype), z.b, z.s, z.a,
                                        z.d, custom ? ", own kernels" : ", cuDNN");
  const Work run_forward = [&] { backend_.attention().Forward(*stream_, forward); };
  const Work run_grad = [&] { backend_.attention().Grad(*stream_, grad); };
  const AttentionRates rates{
      .forward = Flops("attention Forward" + shape, flops, 0, run_forward, bars.forward),
      .backward = Flops("attention Grad" + shape, 2.5 * flops, 0, run_grad, bars.backward)};
  if (!custom) {
    AgainstItsPlan("attention Forward" + shape, run_forward);
    AgainstItsPlan("attention Grad" + shape, run_grad);
  }
  Free();
  return rates;
}

void GpuOpBenches::Attention(const AttentionBench& z) {
  const AttentionRates cudnn = AttentionPair(z, DType::kBf16, false, {});
  const AttentionRates custom = AttentionPair(
      z, DType::kBf16, true,
      {.forward = kCustomHalfBar * cudnn.forward, .backward = kCustomHalfBar * cudnn.backward});
  if (cudnn.forward > 0 && cudnn.backward > 0) {
    fmt::print("  own over cuDNN: forward {:.2f}, backward {:.2f}\n",
               custom.forward / cudnn.forward, custom.backward / cudnn.backward);
  }
  AttentionPair(z, DType::kF32, true, {.forward = kCustomFp32Bar, .backward = kCustomFp32Bar});
}

}  // namespace mt::kernels::bench
