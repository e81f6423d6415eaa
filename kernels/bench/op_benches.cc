// Each benchmark makes its operands, times the op by the fastest of several runs and prints one
// line; GEMMs also call OpenBLAS directly for comparison.
#include "kernels/bench/op_benches.h"

#include <cmath>

#include <cblas-openblas.h>
#include <fmt/format.h>

#include "kernels/bench/timing.h"

namespace mt::kernels::bench {
namespace {

struct Mnk {
  int64_t m, n, k;
};

}  // namespace

OpBenches::OpBenches(Backend* backend)
    : backend_(*backend), stream_(backend->device().CreateStream(StreamPriority::kLow)) {}

Tensor OpBenches::Make(Shape shape, DType dtype) {
  buffers_.push_back(
      backend_.device().Allocate(shape.NumElements() * SizeOf(dtype), MemoryKind::kDevice));
  const Tensor tensor{buffers_.back()->data(), dtype, shape};
  if (dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16) {
    backend_.random().FillNormal(*stream_, {.key = buffers_.size(), .std = 0.05, .out = tensor});
  }
  return tensor;
}

Workspace OpBenches::Scratch(int64_t bytes) {
  buffers_.push_back(backend_.device().Allocate(bytes, MemoryKind::kDevice));
  return {buffers_.back()->data(), bytes};
}

void OpBenches::Gemms(int threads) {
  for (const auto [m, n, k] : {Mnk{1024, 2304, 768}, Mnk{1024, 3072, 768}, Mnk{1024, 768, 3072},
                               Mnk{1024, 50304, 768}, Mnk{1024, 384, 128}}) {
    const Tensor x = Make({m, k}), w = Make({n, k}), y = Make({m, n});
    const double flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const std::string shape = fmt::format("T {} n {} k {}", m, n, k);
    const double ours =
        FastestSeconds([&] { backend_.linear().Forward(*stream_, {.x = x, .w = w, .y = y}); });
    PrintFlops("linear", "Forward " + shape, ours, flops);
    openblas_set_num_threads(threads);
    const auto im = static_cast<blasint>(m), in = static_cast<blasint>(n),
               ik = static_cast<blasint>(k);
    const double bare = FastestSeconds([&] {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, im, in, ik, 1, x.Data<float>(), ik,
                  w.Data<float>(), ik, 0, y.Data<float>(), in);
    });
    openblas_set_num_threads(1);
    PrintFlops("openblas", "bare    " + shape, bare, flops);
  }
}

void OpBenches::Attention(double dropout) {
  constexpr int64_t kS = 1024, kA = 12, kD = 64, kH = kA * kD;
  const Tensor qkv = Make({kS, 3 * kH}), o = Make({kS, kH}), lse = Make({kA, kS});
  const Tensor dqkv = Make({kS, 3 * kH}), dout = Make({kS, kH});
  const Tensor samples = Make({1}, DType::kI64), positions = Make({kS}, DType::kI32);
  for (int64_t i = 0; i < kS; ++i) positions.Data<int32_t>()[i] = static_cast<int32_t>(i);
  const auto view = [](const Tensor& x, int64_t first, int64_t width) {
    return HeadView{x.Data<float>() + first, width, width, kD};
  };
  AttentionForwardArgs forward{
      .shape = {.s = kS, .b = 1, .a = kA, .g = kA, .d = kD, .scale = 0.125},
      .q = view(qkv, 0, 3 * kH),
      .k = view(qkv, kH, 3 * kH),
      .v = view(qkv, 2 * kH, 3 * kH),
      .dropout = {.rate = MakeDropoutRate(dropout),
                  .key = 5,
                  .samples = samples,
                  .positions = positions},
      .o = view(o, 0, kH),
      .lse = lse};
  forward.workspace = Scratch(backend_.attention().Plan(forward));
  // Two matrix products over the causal half of [s, s]; five in backward.
  const double flops = 2.0 * kS * kS * kH;
  const std::string shape = fmt::format("s 1024 a 12 d 64, dropout {}", dropout);
  PrintFlops("attention", "Forward " + shape,
             FastestSeconds([&] { backend_.attention().Forward(*stream_, forward); }), flops);
  AttentionGradArgs grad{.shape = forward.shape,
                         .q = forward.q,
                         .k = forward.k,
                         .v = forward.v,
                         .dropout = forward.dropout,
                         .o = forward.o,
                         .lse = lse,
                         .do_ = view(dout, 0, kH),
                         .dq = view(dqkv, 0, 3 * kH),
                         .dk = view(dqkv, kH, 3 * kH),
                         .dv = view(dqkv, 2 * kH, 3 * kH)};
  grad.workspace = Scratch(backend_.attention().Plan(grad));
  PrintFlops("attention", "Grad    " + shape,
             FastestSeconds([&] { backend_.attention().Grad(*stream_, grad); }), 2.5 * flops);
}

void OpBenches::Norms(double dropout) {
  const Tensor branch = Make({1024, 768}), residual = Make({1024, 768}), out = Make({1024, 768});
  const Tensor y = Make({1024, 768}), mean = Make({1024}), rstd = Make({1024}), gain = Make({768});
  const Tensor shift = Make({768}), samples = Make({1}, DType::kI64),
               positions = Make({1024}, DType::kI32);
  const Dropout mask{
      .rate = MakeDropoutRate(dropout), .key = 3, .samples = samples, .positions = positions};
  const double n = 1024 * 768;
  const std::string shape = fmt::format("[1024, 768], dropout {}", dropout);
  PrintBytes("add_norm", "AddNorm " + shape, FastestSeconds([&] {
               backend_.add_norm().AddNorm(*stream_, {.residual = residual,
                                                      .partials = Partials(branch),
                                                      .bias = gain,
                                                      .dropout = mask,
                                                      .gain = gain,
                                                      .shift = shift,
                                                      .residual_out = out,
                                                      .y = y,
                                                      .mean = mean,
                                                      .rstd = rstd});
             }),
             16 * n);
  const Tensor dgain = Make({768}), dshift = Make({768}), dbias = Make({768});
  AddNormGradArgs grad{.dy = Partials(y),
                       .dresidual_in = residual,
                       .residual_out = out,
                       .mean = mean,
                       .rstd = rstd,
                       .gain = gain,
                       .dropout = mask,
                       .dresidual = residual,
                       .dbranch = dropout > 0 ? branch : residual,
                       .dgain = dgain,
                       .dshift = dshift,
                       .dbias = dbias};
  grad.workspace = Scratch(backend_.add_norm().WorkspaceBytes(grad));
  PrintBytes("add_norm", "AddNormGrad " + shape,
             FastestSeconds([&] { backend_.add_norm().AddNormGrad(*stream_, grad); }),
             (dropout > 0 ? 20 : 16) * n);
}

void OpBenches::Elementwise() {
  const Tensor pre = Make({1024, 3072}), y = Make({1024, 3072}), dy = Make({1024, 3072});
  const Tensor column_sums = Make({3072});
  const double n = 1024 * 3072;
  PrintBytes("act", "gelu [1024, 3072]",
             FastestSeconds([&] { backend_.act().Act(*stream_, {.pre = pre, .y = y}); }), 8 * n);
  PrintBytes("act", "gelu gradient [1024, 3072]", FastestSeconds([&] {
               backend_.act().ActGrad(*stream_, {.dy = dy, .pre = pre, .dpre = y});
             }),
             12 * n);
  PrintBytes("vector", "AddTo [1024, 3072]",
             FastestSeconds([&] { backend_.vector().AddTo(*stream_, y, dy); }), 12 * n);
  PrintBytes("vector", "RowSum [1024, 3072]", FastestSeconds([&] {
               backend_.vector().RowSum(*stream_, y, GradMode::kOverwrite, column_sums);
             }),
             4 * n);
  PrintBytes("random", "FillNormal [1024, 3072]",
             FastestSeconds([&] { backend_.random().FillNormal(*stream_, {.key = 1, .out = y}); }),
             4 * n);
}

void OpBenches::LossEmbeddingUpdate() {
  constexpr int64_t kRows = 1024, kV = 50304, kH = 768;
  const Tensor logits = Make({kRows, kV}), labels = Make({kRows}, DType::kI32),
               weight = Make({kRows});
  const Tensor stats = Make({1, kRows, 3}), sums = Make({2}, DType::kF64);
  PrintBytes("loss", "StatsFinish [1024, 50304]", FastestSeconds([&] {
               backend_.loss().StatsFinish(*stream_, {.logits = logits,
                                                      .labels = labels,
                                                      .real_columns = 50257,
                                                      .stats = stats,
                                                      .weight = weight,
                                                      .seed = 1e-3,
                                                      .sums = sums});
             }),
             8.0 * kRows * kV);
  const Tensor table = Make({kV, kH}), out = Make({kRows, kH}), order = Make({kRows}, DType::kI32);
  const Tensor tokens = Make({kRows}, DType::kI32), start = Make({kRows + 1}, DType::kI32);
  for (int64_t i = 0; i <= kRows; ++i) start.Data<int32_t>()[i] = static_cast<int32_t>(i);
  for (int64_t i = 0; i < kRows; ++i) {
    order.Data<int32_t>()[i] = static_cast<int32_t>(i);
    tokens.Data<int32_t>()[i] = static_cast<int32_t>(i * 48);
  }
  PrintBytes("embedding", "Gather [1024, 768]", FastestSeconds([&] {
               backend_.embedding().Gather(*stream_,
                                           {.tokens = tokens, .table = table, .out = out});
             }),
             8.0 * kRows * kH);
  PrintBytes("embedding", "ScatterGrad [1024, 768]", FastestSeconds([&] {
               backend_.embedding().ScatterGrad(*stream_, {.dy = out,
                                                           .order = order,
                                                           .segment_token = tokens,
                                                           .segment_start = start,
                                                           .num_segments = kRows,
                                                           .dtable = table});
             }),
             12.0 * kRows * kH);
  const Tensor flat{table.data, DType::kF32, {kV * kH}}, g = Make({kV * kH}), m = Make({kV * kH}),
                                                         v = Make({kV * kH});
  backend_.vector().Fill(*stream_, v, 1e-4);
  const StepScalars scalars;
  PrintBytes("update", "SquareSum [38.6M]", FastestSeconds([&] {
               backend_.update().SquareSum(*stream_, {.gradient = g, .out = sums});
             }),
             4.0 * kV * kH);
  PrintBytes(
      "update", "AdamW [38.6M]", FastestSeconds([&] {
        backend_.update().AdamW(
            *stream_,
            {.gradient = g, .master = flat, .m = m, .v = v, .decay = true, .scalars = &scalars});
      }),
      28.0 * kV * kH);
}

}  // namespace mt::kernels::bench
