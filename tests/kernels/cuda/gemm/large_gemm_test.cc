// Linear layers on operands of more than 2^31 elements (large.h), written and read.
#include "tests/kernels/cuda/large.h"

namespace mt::kernels::cuda {
namespace {

class LargeProductsTest : public LargeOperandsTest {};

// Few of the other size, so that the CPU's part is small.
constexpr int64_t kFew = 64;

TEST_F(LargeProductsTest, ProductsWriteEveryRow) {
  constexpr int64_t kOutputs = 32768, kTokens = kTwoTo31 / kOutputs + 128;
  const Operand w = Twins(7).Random(DType::kBf16, {kOutputs, kFew}, 0.2);
  const Operand bias = Twins(8).Random(DType::kBf16, {kOutputs});
  const Operand turned = Twins(9).Random(DType::kBf16, {kFew, kOutputs}, 0.2);
  const Operand x = Twins(10).Random(DType::kBf16, {kTokens, kFew});
  const auto part_of = [&](const Rows& rows) {
    const std::vector<std::byte> raw = x.Bytes(Side::kCpu);
    Operand out(DType::kBf16, {rows.count, kFew});
    out.SetBoth(raw.data() + rows.begin * kFew * SizeOf(DType::kBf16));
    return out;
  };
  const Large y(DType::kBf16, kTokens, kOutputs), pre(DType::kBf16, kTokens, kOutputs);
  const auto windows = RowsOf(y);
  for (const bool act : {false, true}) {
    const auto run = [&](Side side, const Tensor& in, const Tensor& before, const Tensor& out) {
      if (act) {
        RunWith(side,
                LinearForwardActArgs{.x = in,
                                     .w = w[side],
                                     .bias = bias[side],
                                     .act = ActKind::kGelu,
                                     .pre = before,
                                     .y = out},
                &LinearOps::ForwardAct);
      } else {
        RunWith(side, LinearForwardArgs{.x = in, .w = w[side], .bias = bias[side], .y = out},
                &LinearOps::Forward);
      }
    };
    run(Side::kGpu, x[Side::kGpu], pre.tensor(), y.tensor());
    for (const Rows& rows : windows) {
      const Operand in = part_of(rows);
      const Operand before = Twins::Output(DType::kBf16, {rows.count, kOutputs});
      const Operand out = Twins::Output(DType::kBf16, {rows.count, kOutputs});
      run(Side::kCpu, in[Side::kCpu], before[Side::kCpu], out[Side::kCpu]);
      Retake(y, rows, out);
      ExpectClose(out, act ? Kind::kFused : Kind::kGemm, DType::kBf16, "y of " + At(rows));
      if (!act) continue;
      Retake(pre, rows, before);
      ExpectClose(before, Kind::kGemm, DType::kBf16, "pre of " + At(rows));
    }
  }
  // Backward over the same tokens: dpre = (x turned) * activation'(pre), in y's place.
  const Operand dbias = Twins::Output(DType::kF32, {kOutputs});
  RunWith(Side::kGpu,
          LinearInputGradActArgs{.dy = x[Side::kGpu],
                                 .w = turned[Side::kGpu],
                                 .pre = pre.tensor(),
                                 .act = ActKind::kGelu,
                                 .dpre = y.tensor(),
                                 .dbias = dbias[Side::kGpu]},
          &LinearOps::InputGradAct);
  for (const Rows& rows : windows) {
    const Operand in = part_of(rows), before = Take(pre, rows);
    const Operand out = Twins::Output(DType::kBf16, {rows.count, kOutputs});
    RunWith(Side::kCpu,
            LinearInputGradActArgs{.dy = in[Side::kCpu],
                                   .w = turned[Side::kCpu],
                                   .pre = before[Side::kCpu],
                                   .act = ActKind::kGelu,
                                   .dpre = out[Side::kCpu]},
            &LinearOps::InputGradAct);
    Retake(y, rows, out);
    ExpectClose(out, Kind::kFused, DType::kBf16, "dpre of " + At(rows));
  }
  // Its column sums, by another op.
  const Operand sums = Twins::Output(DType::kF32, {kOutputs});
  Gpu().vector().RowSum(GpuStream(), y.tensor(), GradMode::kOverwrite, sums[Side::kGpu]);
  sums.SetBytes(Side::kCpu, sums.Bytes(Side::kGpu).data());
  sums.SetBytes(Side::kGpu, dbias.Bytes(Side::kGpu).data());
  ExpectClose(sums, Kind::kFused, DType::kBf16, "dbias");
}

TEST_F(LargeProductsTest, ProductsReadEveryRow) {
  const Large x(DType::kBf16, kMany, kHidden);
  x.FillNormal(11, 1);
  const Operand w = Twins(12).Random(DType::kBf16, {kFew, kHidden}, 0.2);
  const Large y(DType::kBf16, kMany, kFew);
  RunWith(Side::kGpu, LinearForwardArgs{.x = x.tensor(), .w = w[Side::kGpu], .y = y.tensor()},
          &LinearOps::Forward);
  const auto windows = RowsOf(x);
  for (const Rows& rows : windows) {
    const Operand in = Take(x, rows), out = Twins::Output(DType::kBf16, {rows.count, kFew});
    RunWith(Side::kCpu,
            LinearForwardArgs{.x = in[Side::kCpu], .w = w[Side::kCpu], .y = out[Side::kCpu]},
            &LinearOps::Forward);
    Retake(y, rows, out);
    ExpectClose(out, Kind::kGemm, DType::kBf16, "y of " + At(rows));
  }
  // dx = y w, in x's place, and before it dw = y^T x with nothing but these rows of y.
  const Large dy(DType::kBf16, kMany, kFew);
  dy.Zero();
  const Operand dw = Twins::Output(DType::kF32, {kFew, kHidden});
  for (const Rows& rows : windows) {
    const Tensor from = y.tensor().Rows(rows.begin, rows.count);
    Gpu().device().Copy(GpuStream(), dy.tensor().Rows(rows.begin, rows.count).data, from.data,
                        from.Bytes());
    RunWith(Side::kCpu,
            LinearWeightGradArgs{.dy = Take(y, rows)[Side::kCpu],
                                 .x = Take(x, rows)[Side::kCpu],
                                 .mode = rows.begin == 0 ? GradMode::kOverwrite : GradMode::kAdd,
                                 .dw = dw[Side::kCpu]},
            &LinearOps::WeightGrad);
  }
  RunWith(Side::kGpu,
          LinearWeightGradArgs{.dy = dy.tensor(), .x = x.tensor(), .dw = dw[Side::kGpu]},
          &LinearOps::WeightGrad);
  ExpectClose(dw, Kind::kGemm, DType::kF32, "dw");
  RunWith(Side::kGpu, LinearInputGradArgs{.dy = y.tensor(), .w = w[Side::kGpu], .dx = x.tensor()},
          &LinearOps::InputGrad);
  for (const Rows& rows : windows) {
    const Operand in = Take(y, rows), out = Twins::Output(DType::kBf16, {rows.count, kHidden});
    RunWith(Side::kCpu,
            LinearInputGradArgs{.dy = in[Side::kCpu], .w = w[Side::kCpu], .dx = out[Side::kCpu]},
            &LinearOps::InputGrad);
    Retake(x, rows, out);
    ExpectClose(out, Kind::kGemm, DType::kBf16, "dx of " + At(rows));
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
