// CPU benchmarks of the ops that Llama-like models use instead of GPT-2's, and of the ops on 16-bit
// tensors.
#include <fmt/format.h>

#include "kernels/bench/op_benches.h"
#include "kernels/bench/timing.h"

namespace mt::kernels::bench {
namespace {

constexpr int64_t kTokens = 1024, kHeads = 12, kHeadDim = 64, kWidth = kHeads * kHeadDim;

// Returns q, k or v (first = 0, 1, 2) of a packed projection, or o of a plain tensor.
HeadView View(const Tensor& x, int64_t first) {
  const int64_t width = x.shape[1];
  return {static_cast<char*>(x.data) + first * kWidth * SizeOf(x.dtype), width, width, kHeadDim};
}

}  // namespace

void OpBenches::AttentionOf(DType dtype, int64_t window, const std::string& what) {
  const Tensor qkv = Make({kTokens, 3 * kWidth}, dtype), o = Make({kTokens, kWidth}, dtype);
  const Tensor dqkv = Make({kTokens, 3 * kWidth}, dtype), dout = Make({kTokens, kWidth}, dtype);
  const Tensor lse = Make({kHeads, kTokens});
  AttentionForwardArgs forward{.shape = {.dtype = dtype,
                                         .s = kTokens,
                                         .b = 1,
                                         .a = kHeads,
                                         .g = kHeads,
                                         .d = kHeadDim,
                                         .scale = 0.125,
                                         .window = window},
                               .q = View(qkv, 0),
                               .k = View(qkv, 1),
                               .v = View(qkv, 2),
                               .o = View(o, 0),
                               .lse = lse};
  forward.workspace = Scratch(backend_.attention().Plan(forward));
  // Two matrix products over the visible keys of each query; five in backward.
  const int64_t seen = window == 0 ? kTokens / 2 : window;
  const double flops = 4.0 * static_cast<double>(kTokens * seen * kWidth);
  PrintFlops("attention", "Forward " + what,
             FastestSeconds([&] { backend_.attention().Forward(*stream_, forward); }), flops);
  AttentionGradArgs grad{.shape = forward.shape,
                         .q = forward.q,
                         .k = forward.k,
                         .v = forward.v,
                         .o = forward.o,
                         .lse = lse,
                         .do_ = View(dout, 0),
                         .dq = View(dqkv, 0),
                         .dk = View(dqkv, 1),
                         .dv = View(dqkv, 2)};
  grad.workspace = Scratch(backend_.attention().Plan(grad));
  PrintFlops("attention", "Grad    " + what,
             FastestSeconds([&] { backend_.attention().Grad(*stream_, grad); }), 2.5 * flops);
}

void OpBenches::Variants() {
  const Tensor pre = Make({kTokens, 4096}), y = Make({kTokens, 2048}), dy = Make({kTokens, 2048}),
               dpre = Make({kTokens, 4096});
  const double n = 1024 * 2048;
  PrintBytes("act", "swiglu [1024, 2 x 2048]", FastestSeconds([&] {
               backend_.act().Act(*stream_, {.kind = ActKind::kSwiglu, .pre = pre, .y = y});
             }),
             12 * n);
  PrintBytes("act", "swiglu gradient [1024, 2 x 2048]", FastestSeconds([&] {
               backend_.act().ActGrad(
                   *stream_, {.kind = ActKind::kSwiglu, .dy = dy, .pre = pre, .dpre = dpre});
             }),
             20 * n);
  const Tensor qkv = Make({kTokens, 3 * kWidth}), table = Make({kTokens, kHeadDim}),
               positions = Make({kTokens}, DType::kI32);
  for (int64_t i = 0; i < kTokens; ++i) positions.Data<int32_t>()[i] = static_cast<int32_t>(i);
  FillRopeTable({.head_dim = kHeadDim}, table);
  PrintBytes("rope", "Rotate s 1024 a 12 d 64", FastestSeconds([&] {
               backend_.rope().Rotate(*stream_, {.shape = {.a = kHeads,
                                                           .g = kHeads,
                                                           .d = kHeadDim,
                                                           .table = table,
                                                           .positions = positions},
                                                 .qkv = qkv});
             }),
             16.0 * kTokens * kWidth);
  AttentionOf(DType::kF32, 256, "s 1024 a 12 d 64, window 256");
}

void OpBenches::Halves(DType dtype) {
  const std::string type(Name(dtype));
  const Tensor x = Make({kTokens, 768}, dtype), w = Make({3072, 768}, dtype),
               y = Make({kTokens, 3072}, dtype), dw = Make({3072, 768});
  LinearForwardArgs forward{.x = x, .w = w, .y = y};
  forward.workspace = Scratch(backend_.linear().Plan(forward));
  const double flops = 2.0 * 1024 * 768 * 3072;
  PrintFlops("linear", "Forward    T 1024 n 3072 k 768 " + type,
             FastestSeconds([&] { backend_.linear().Forward(*stream_, forward); }), flops);
  LinearWeightGradArgs grad{.dy = y, .x = x, .mode = GradMode::kAdd, .dw = dw};
  grad.workspace = Scratch(backend_.linear().Plan(grad));
  PrintFlops("linear", "WeightGrad T 1024 n 3072 k 768 " + type,
             FastestSeconds([&] { backend_.linear().WeightGrad(*stream_, grad); }), flops);
  AttentionOf(dtype, 0, "s 1024 a 12 d 64 " + type);
  const Tensor branch = Make({kTokens, 768}, dtype), out = Make({kTokens, 768}, dtype),
               normed = Make({kTokens, 768}, dtype), gain = Make({768}, dtype),
               mean = Make({kTokens}), rstd = Make({kTokens});
  PrintBytes("add_norm", "AddNorm [1024, 768] " + type, FastestSeconds([&] {
               backend_.add_norm().AddNorm(*stream_, {.residual = x,
                                                      .partials = Partials(branch),
                                                      .gain = gain,
                                                      .shift = gain,
                                                      .residual_out = out,
                                                      .y = normed,
                                                      .mean = mean,
                                                      .rstd = rstd});
             }),
             8.0 * 1024 * 768);
  const Tensor act = Make({kTokens, 3072}, dtype);
  PrintBytes("act", "gelu [1024, 3072] " + type,
             FastestSeconds([&] { backend_.act().Act(*stream_, {.pre = y, .y = act}); }),
             4.0 * 1024 * 3072);
  constexpr int64_t kShard = int64_t{1} << 22;
  const Tensor g = Make({kShard}), master = Make({kShard}), m = Make({kShard}), v = Make({kShard}),
               copy = Make({kShard}, dtype);
  backend_.vector().Fill(*stream_, v, 1e-4);
  const StepScalars scalars;
  PrintBytes("update", "AdamW [4.2M], copy " + type, FastestSeconds([&] {
               backend_.update().AdamW(*stream_, {.gradient = g,
                                                  .master = master,
                                                  .m = m,
                                                  .v = v,
                                                  .model_copy = copy,
                                                  .scalars = &scalars});
             }),
             30.0 * kShard);
}

}  // namespace mt::kernels::bench
