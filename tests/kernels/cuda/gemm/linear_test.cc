// Linear layers on a GPU against the CPU backend: every entry, bias and activation forms, widths
// that are no multiple of a vector.
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaLinearTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaLinearTest);

struct Mnk {
  int64_t tokens, n, k;
};
const Mnk kSizes[] = {{64, 48, 32}, {130, 72, 264}, {1000, 768, 256}, {33, 101, 67}, {1, 8, 8}};

std::string Text(const Mnk& z) {
  return "T " + std::to_string(z.tokens) + " n " + std::to_string(z.n) + " k " +
         std::to_string(z.k);
}

TEST_P(CudaLinearTest, ForwardIsTheCpus) {
  for (const Mnk& z : kSizes) {
    for (const bool with_bias : {false, true}) {
      Twins twins;
      const Operand x = twins.Random(GetParam(), {z.tokens, z.k}),
                    w = twins.Random(GetParam(), {z.n, z.k});
      const Operand bias = with_bias ? twins.Random(GetParam(), {z.n}) : Operand();
      const Operand y = Twins::Output(GetParam(), {z.tokens, z.n});
      for (const Side side : kSides) {
        RunWith(side,
                LinearForwardArgs{.x = x[side], .w = w[side], .bias = bias[side], .y = y[side]},
                &LinearOps::Forward);
      }
      ExpectClose(y, Kind::kGemm, GetParam(), Text(z));
    }
  }
}

TEST_P(CudaLinearTest, InputGradIsTheCpus) {
  for (const Mnk& z : kSizes) {
    Twins twins;
    const Operand dy = twins.Random(GetParam(), {z.tokens, z.n}),
                  w = twins.Random(GetParam(), {z.n, z.k});
    const Operand dx = Twins::Output(GetParam(), {z.tokens, z.k});
    for (const Side side : kSides) {
      RunWith(side, LinearInputGradArgs{.dy = dy[side], .w = w[side], .dx = dx[side]},
              &LinearOps::InputGrad);
    }
    ExpectClose(dx, Kind::kGemm, GetParam(), Text(z));
  }
}

TEST_P(CudaLinearTest, WeightGradOverwritesAndAddsInF32) {
  for (const Mnk& z : kSizes) {
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAdd}) {
      Twins twins;
      const Operand dy = twins.Random(GetParam(), {z.tokens, z.n}),
                    x = twins.Random(GetParam(), {z.tokens, z.k});
      const Operand dw = mode == GradMode::kAdd ? twins.Random(DType::kF32, {z.n, z.k})
                                                : Twins::Output(DType::kF32, {z.n, z.k});
      const Operand dbias = twins.Random(DType::kF32, {z.n});
      for (const Side side : kSides) {
        RunWith(
            side,
            LinearWeightGradArgs{
                .dy = dy[side], .x = x[side], .mode = mode, .dw = dw[side], .dbias = dbias[side]},
            &LinearOps::WeightGrad);
      }
      ExpectClose(dw, Kind::kGemm, DType::kF32, Text(z));
      ExpectClose(dbias, Kind::kSum, DType::kF32, Text(z));
    }
  }
}

TEST_P(CudaLinearTest, ActivationFormsAreTheCpus) {
  for (const ActKind kind :
       {ActKind::kGelu, ActKind::kSwiglu, ActKind::kRelu2, ActKind::kGeluErf}) {
    for (const Mnk& z : {Mnk{256, 384, 96}, Mnk{2048, 3072, 768}, Mnk{33, 101, 67}}) {
      if (z.tokens > 1000 && kind != ActKind::kGelu) continue;
      const std::string what = Text(z) + " kind " + std::to_string(static_cast<int>(kind));
      Twins twins;
      const int64_t wide = PreColumns(kind, z.n);
      const Operand x = twins.Random(GetParam(), {z.tokens, z.k}),
                    w1 = twins.Random(GetParam(), {wide, z.k}, 0.2);
      const Operand bias = twins.Random(GetParam(), {wide}),
                    dout = twins.Random(GetParam(), {z.tokens, z.k});
      const Operand w2 = twins.Random(GetParam(), {z.k, z.n}, 0.2);
      const Operand pre = Twins::Output(GetParam(), {z.tokens, wide}),
                    y = Twins::Output(GetParam(), {z.tokens, z.n});
      const Operand dpre = Twins::Output(GetParam(), {z.tokens, wide});
      for (const Side side : kSides) {
        RunWith(side,
                LinearForwardActArgs{.x = x[side],
                                     .w = w1[side],
                                     .bias = bias[side],
                                     .act = kind,
                                     .pre = pre[side],
                                     .y = y[side]},
                &LinearOps::ForwardAct);
      }
      ExpectClose(pre, Kind::kGemm, GetParam(), what + " pre");
      ExpectClose(y, Kind::kFused, GetParam(), what + " y");
      pre.Share();
      const auto input_grad = [&](GradMode mode, const Operand& dbias) {
        dpre.Poison();
        for (const Side side : kSides) {
          RunWith(side,
                  LinearInputGradActArgs{.dy = dout[side],
                                         .w = w2[side],
                                         .pre = pre[side],
                                         .act = kind,
                                         .dpre = dpre[side],
                                         .mode = mode,
                                         .dbias = dbias[side]},
                  &LinearOps::InputGradAct);
        }
        ExpectClose(dpre, Kind::kFused, GetParam(), what + " dpre");
      };
      input_grad(GradMode::kOverwrite, Operand());
      const Operand written = Twins::Output(DType::kF32, {wide}),
                    added = twins.Random(DType::kF32, {wide});
      input_grad(GradMode::kOverwrite, written);
      ExpectClose(written, Kind::kFused, GetParam(), what + " dbias written");
      input_grad(GradMode::kAdd, added);
      ExpectClose(added, Kind::kFused, GetParam(), what + " dbias added");
    }
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
