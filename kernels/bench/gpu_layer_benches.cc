// The ops of a layer except attention: norms, activations, GEMMs, rotations.
#include <vector>

#include <fmt/format.h>

#include "kernels/bench/gpu_op_benches.h"

namespace mt::kernels::bench {
namespace {

double Count(int64_t n) { return static_cast<double>(n); }

// Bar in bytes per second, with dropout: the rate needed for training at the speed of the best
// comparable systems.
constexpr double kAddNormGradBar = 3.4e12;

}  // namespace

void GpuOpBenches::Norms(int64_t rows, int64_t h, double dropout) {
  constexpr int64_t kBatch = 8;
  const Tensor branch = Make({rows, h}), residual = Make({rows, h}), out = Make({rows, h});
  const Tensor y = Make({rows, h}), bias = Make({h}), gain = Make({h}), shift = Make({h});
  const Tensor mean = Make({rows}, DType::kF32), rstd = Make({rows}, DType::kF32);
  std::vector<int32_t> at(static_cast<size_t>(rows / kBatch));
  for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i);
  const Dropout mask{.rate = MakeDropoutRate(dropout),
                     .key = 3,
                     .samples = Make({kBatch}, DType::kI64),
                     .positions = Ints(at)};
  const std::string shape = fmt::format("[{}, {}], dropout {}", rows, h, dropout);
  const double n = Count(rows * h);
  Bytes("AddNorm " + shape, 8 * n, [&] {
    backend_.add_norm().AddNorm(*stream_, {.residual = residual,
                                           .partials = Partials(branch),
                                           .bias = bias,
                                           .batch = kBatch,
                                           .dropout = mask,
                                           .gain = gain,
                                           .shift = shift,
                                           .residual_out = out,
                                           .y = y,
                                           .mean = mean,
                                           .rstd = rstd});
  });
  AddNormGradArgs grad{.dy = Partials(y),
                       .dresidual_in = residual,
                       .residual_out = out,
                       .mean = mean,
                       .rstd = rstd,
                       .gain = gain,
                       .dropout = mask,
                       .batch = kBatch,
                       .dresidual = residual,
                       .dbranch = dropout > 0 ? branch : residual,
                       .dgain = Make({h}, DType::kF32),
                       .dshift = Make({h}, DType::kF32),
                       .dbias = Make({h}, DType::kF32)};
  grad.workspace = Scratch(backend_.add_norm().WorkspaceBytes(grad));
  Bytes(
      "AddNormGrad " + shape, (dropout > 0 ? 10 : 8) * n,
      [&] { backend_.add_norm().AddNormGrad(*stream_, grad); }, dropout > 0 ? kAddNormGradBar : 0);
  Free();
}

void GpuOpBenches::Elementwise(int64_t rows, int64_t h) {
  const int64_t f = 4 * h;
  const Tensor pre = Make({rows, f}), y = Make({rows, f}), dy = Make({rows, f});
  const double n = Count(rows * f);
  const std::string shape = fmt::format("[{}, {}]", rows, f);
  const Tensor half = Make({rows, f / 2}), dhalf = Make({rows, f / 2});
  for (const auto& [name, kind] : {std::pair<const char*, ActKind>{"gelu ", ActKind::kGelu},
                                   {"relu2 ", ActKind::kRelu2},
                                   {"swiglu ", ActKind::kSwiglu},
                                   {"geglu ", ActKind::kGeglu}}) {
    const bool gated = IsGated(kind);
    const ActArgs forward{.kind = kind, .pre = pre, .y = gated ? half : y};
    const ActGradArgs gradient{
        .kind = kind, .dy = gated ? dhalf : dy, .pre = pre, .dpre = gated ? dy : y};
    Bytes(name + shape, (gated ? 3 : 4) * n, [&] { backend_.act().Act(*stream_, forward); });
    Bytes(name + ("gradient " + shape), (gated ? 5 : 6) * n,
          [&] { backend_.act().ActGrad(*stream_, gradient); });
  }
  const Tensor sums = Make({f}, DType::kF32);
  Bytes("RowSum " + shape, 2 * n,
        [&] { backend_.vector().RowSum(*stream_, dy, GradMode::kOverwrite, sums); });
  Bytes("AddTo " + shape, 6 * n, [&] { backend_.vector().AddTo(*stream_, y, dy); });
  const Tensor sum = Make({rows, f});
  Partials four(pre);
  for (const Tensor& more : {y, dy, y}) four.tensor[static_cast<size_t>(four.count++)] = more;
  Bytes("SumPartials of 4 " + shape, 10 * n,
        [&] { backend_.vector().SumPartials(*stream_, sum, four); });
  Bytes("Fill " + shape, 2 * n, [&] { backend_.vector().Fill(*stream_, y, 1); });
  const Tensor wide = Make({rows, f}, DType::kF32);
  Bytes("Cast f32 to bf16 " + shape, 6 * n, [&] { backend_.vector().Cast(*stream_, y, wide); });
  Bytes("FillNormal " + shape, 2 * n,
        [&] { backend_.random().FillNormal(*stream_, {.key = 7, .std = 0.02, .out = y}); });
  Free();
}

void GpuOpBenches::Gemms(int64_t tokens, int64_t h) {
  const int64_t f = 4 * h;
  const Tensor x = Make({tokens, h}), w1 = Make({f, h}), w2 = Make({h, f}), bias = Make({f});
  const Tensor pre = Make({tokens, f}), y = Make({tokens, f}), dx = Make({tokens, h});
  const Tensor dw = Make({f, h}, DType::kF32), dbias = Make({f}, DType::kF32);
  LinearOps& linear = backend_.linear();
  const auto bench = [&](const std::string& name, int64_t in, int64_t out, auto args, auto entry) {
    const std::string line = fmt::format("{} T {} {} x {}", name, tokens, in, out);
    if (!Wanted(line)) return;
    args.workspace = Scratch(linear.Plan(args));
    Flops(line, 2.0 * Count(tokens) * Count(in) * Count(out), gemm_rate_,
          [&] { (linear.*entry)(*stream_, args); });
  };
  // Forward with bias, and both gradients, of a layer [out, in].
  const auto layer = [&](const std::string& name, int64_t in, int64_t out) {
    const Tensor from{x.data, x.dtype, {tokens, in}}, to{y.data, y.dtype, {tokens, out}};
    const Tensor w{w1.data, w1.dtype, {out, in}}, b{bias.data, bias.dtype, {out}};
    bench("Forward " + name + " + bias", in, out,
          LinearForwardArgs{.x = from, .w = w, .bias = b, .y = to}, &LinearOps::Forward);
    bench("InputGrad " + name, in, out,
          LinearInputGradArgs{.dy = to, .w = w, .dx = {dx.data, dx.dtype, {tokens, in}}},
          &LinearOps::InputGrad);
    for (const bool with_bias : {false, true}) {
      bench("WeightGrad " + name + (with_bias ? ", sums" : ""), in, out,
            LinearWeightGradArgs{
                .dy = to,
                .x = from,
                .dw = {dw.data, dw.dtype, {out, in}},
                .dbias = with_bias ? Tensor{dbias.data, dbias.dtype, {out}} : Tensor{}},
            &LinearOps::WeightGrad);
    }
  };
  layer("qkv", h, 3 * h);
  layer("proj", h, h);
  layer("fc1", h, f);
  bench("ForwardAct fc1 + bias + gelu", h, f,
        LinearForwardActArgs{.x = x, .w = w1, .bias = bias, .pre = pre, .y = y},
        &LinearOps::ForwardAct);
  bench("WeightGrad fc1 added", h, f,
        LinearWeightGradArgs{.dy = y, .x = x, .mode = GradMode::kAdd, .dw = dw},
        &LinearOps::WeightGrad);
  bench("Forward fc2", f, h, LinearForwardArgs{.x = y, .w = w2, .y = dx}, &LinearOps::Forward);
  bench("InputGradAct fc2 + gelu'", f, h,
        LinearInputGradActArgs{.dy = x, .w = w2, .pre = pre, .dpre = y}, &LinearOps::InputGradAct);
  bench("InputGradAct fc2 + gelu', sums", f, h,
        LinearInputGradActArgs{.dy = x, .w = w2, .pre = pre, .dpre = y, .dbias = dbias},
        &LinearOps::InputGradAct);
  Free();
}

// The feed-forward block of a Llama-like layer, of width 11/4 h.
void GpuOpBenches::GatedGemms(int64_t tokens, int64_t h) {
  const int64_t f = 11 * h / 4;
  const Tensor x = Make({tokens, h}), w1 = Make({2 * f, h}), w2 = Make({h, f});
  const Tensor pre = Make({tokens, 2 * f}), dpre = Make({tokens, 2 * f}), y = Make({tokens, f});
  LinearOps& linear = backend_.linear();
  LinearForwardActArgs forward{.x = x, .w = w1, .act = ActKind::kSwiglu, .pre = pre, .y = y};
  forward.workspace = Scratch(linear.Plan(forward));
  Flops(fmt::format("ForwardAct fc1 + swiglu T {} {} x 2 x {}", tokens, h, f),
        4.0 * Count(tokens) * Count(h) * Count(f), gemm_rate_,
        [&] { linear.ForwardAct(*stream_, forward); });
  LinearInputGradActArgs grad{.dy = x, .w = w2, .pre = pre, .act = ActKind::kSwiglu, .dpre = dpre};
  grad.workspace = Scratch(linear.Plan(grad));
  Flops(fmt::format("InputGradAct fc2 + swiglu' T {} {} x {}", tokens, f, h),
        2.0 * Count(tokens) * Count(h) * Count(f), gemm_rate_,
        [&] { linear.InputGradAct(*stream_, grad); });
  Free();
}

void GpuOpBenches::Rope() {
  constexpr int64_t kS = 2048, kB = 8, kA = 16, kD = 128, kRows = kS * kB;
  std::vector<int32_t> at(kS);
  for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i);
  const RotateShape shape{.batch = kB,
                          .a = kA,
                          .g = kA,
                          .d = kD,
                          .table = Make({kS, kD}, DType::kF32),
                          .positions = Ints(at)};
  const Tensor qkv = Make({kRows, 3 * kA * kD});
  Bytes("Rotate [16384, 2 x 16 x 128]", 8.0 * kRows * kA * kD,
        [&] { backend_.rope().Rotate(*stream_, {.shape = shape, .qkv = qkv}); });
  Bytes("RotateGrad [16384, 2 x 16 x 128]", 8.0 * kRows * kA * kD,
        [&] { backend_.rope().RotateGrad(*stream_, {.shape = shape, .dqkv = qkv}); });
  RotateShape normed = shape;
  normed.q_gain = Make({kD});
  normed.k_gain = Make({kD});
  const Tensor input = Make({kRows, 2 * kA * kD}), rstd = Make({kRows, 2 * kA}, DType::kF32);
  Bytes("Rotate with QK norm [16384, 2 x 16 x 128]", 12.0 * kRows * kA * kD, [&] {
    backend_.rope().Rotate(*stream_, {.shape = normed, .qkv = qkv, .input = input, .rstd = rstd});
  });
  RotateGradArgs grad{.shape = normed,
                      .dqkv = qkv,
                      .input = input,
                      .rstd = rstd,
                      .dq_gain = Make({kD}, DType::kF32),
                      .dk_gain = Make({kD}, DType::kF32)};
  grad.workspace = Scratch(backend_.rope().WorkspaceBytes(grad));
  Bytes("RotateGrad with QK norm [16384, 2 x 16 x 128]", 12.0 * kRows * kA * kD,
        [&] { backend_.rope().RotateGrad(*stream_, grad); });
  Free();
}

}  // namespace mt::kernels::bench
