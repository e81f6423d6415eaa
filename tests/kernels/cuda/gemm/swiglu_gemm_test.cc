// The custom GEMMs with SwiGLU and its gradients (custom_gemm.h) against the CPU backend.
#include <cmath>

#include "tests/kernels/cuda/gemm/custom_gemm.h"

namespace mt::kernels::cuda {
namespace {

// Of kCustomGemmShapes the features are those of gate and of up.
class CudaSwigluGemmTest : public CustomGemmTest {
 protected:
  bool ChooseForward(const Shape3& z, int sms = 0, Form form = Form::kCustom) const {
    return Choose({.transpose_a = true,
                   .m = 2 * z.features,
                   .n = z.tokens,
                   .k = z.inner,
                   .epilogue = Epilogue::kSwigluAux,
                   .sms = sms},
                  form);
  }
  bool ChooseGrad(const Shape3& z, int sms = 0, Form form = Form::kCustom) const {
    return Choose({.m = z.features,
                   .n = z.tokens,
                   .k = z.inner,
                   .epilogue = Epilogue::kSwigluGrad,
                   .sms = sms},
                  form);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CudaSwigluGemmTest, testing::Values(DType::kBf16, DType::kF16),
                         TypeName);

// Operands of a forward and of a gradient call, on both sides.
struct SwigluCall {
  SwigluCall(const Shape3& z, DType dtype)
      : x(twins.Random(dtype, {z.tokens, z.inner})),
        w1(twins.Random(dtype, {2 * z.features, z.inner}, 0.3)),
        bias(twins.Random(dtype, {2 * z.features})),
        pre(Twins::Output(dtype, {z.tokens, 2 * z.features})),
        y(Twins::Output(dtype, {z.tokens, z.features})),
        dy(twins.Random(dtype, {z.tokens, z.inner})),
        w2(twins.Random(dtype, {z.inner, z.features}, 0.2)),
        kept(twins.Random(dtype, {z.tokens, 2 * z.features}, 3)),
        dpre(Twins::Output(dtype, {z.tokens, 2 * z.features})),
        dbias(twins.Random(DType::kF32, {2 * z.features})) {}

  void Forward(Side side, Backend& backend, int sms = 0, bool with_bias = false) const {
    LinearForwardActArgs args{.x = x[side],
                              .w = w1[side],
                              .bias = with_bias ? bias[side] : Tensor{},
                              .act = ActKind::kSwiglu,
                              .pre = pre[side],
                              .y = y[side],
                              .workspace = {},
                              .sm_budget = sms};
    SideScratch scratch(side, backend.linear().Plan(args));
    args.workspace = scratch.workspace();
    backend.linear().ForwardAct(StreamOf(side), args);
    StreamOf(side).Synchronize();
  }
  void Grad(Side side, Backend& backend, int sms = 0, bool with_bias = false) const {
    LinearInputGradActArgs args{.dy = dy[side],
                                .w = w2[side],
                                .pre = kept[side],
                                .act = ActKind::kSwiglu,
                                .dpre = dpre[side],
                                .dbias = with_bias ? dbias[side] : Tensor{},
                                .workspace = {},
                                .sm_budget = sms};
    SideScratch scratch(side, backend.linear().Plan(args));
    args.workspace = scratch.workspace();
    backend.linear().InputGradAct(StreamOf(side), args);
    StreamOf(side).Synchronize();
  }

  Twins twins;
  Operand x, w1, bias, pre, y;
  Operand dy, w2, kept, dpre, dbias;
};

TEST_P(CudaSwigluGemmTest, ForwardIsTheCpus) {
  for (const Shape3& z : kCustomGemmShapes) {
    ASSERT_TRUE(ChooseForward(z));
    const SwigluCall call(z, GetParam());
    for (const Side side : kSides) call.Forward(side, At(side));
    ExpectClose(call.pre, Kind::kGemm, GetParam(), z.Text() + " pre");
    ExpectClose(call.y, Kind::kFused, GetParam(), z.Text());
  }
  EXPECT_EQ(Entries(), std::size(kCustomGemmShapes)) << "nothing was timed";
}

TEST_P(CudaSwigluGemmTest, GradientsAreTheCpus) {
  for (const Shape3& z : kCustomGemmShapes) {
    ASSERT_TRUE(ChooseGrad(z));
    const SwigluCall call(z, GetParam());
    for (const Side side : kSides) call.Grad(side, At(side));
    ExpectClose(call.dpre, Kind::kFused, GetParam(), z.Text());
  }
  EXPECT_EQ(Entries(), std::size(kCustomGemmShapes)) << "nothing was timed";
}

TEST_P(CudaSwigluGemmTest, SameBitsInEveryRunAndOnFewerSms) {
  const Shape3 z{2000, 1032, 136};
  const SwigluCall call(z, GetParam());
  std::vector<std::vector<std::byte>> first;
  for (const int sms : {0, 0, 2, 101}) {
    ASSERT_TRUE(ChooseForward(z, sms));
    ASSERT_TRUE(ChooseGrad(z, sms));
    for (const Operand* out : {&call.pre, &call.y, &call.dpre}) out->Poison();
    call.Forward(Side::kGpu, *gpu_, sms);
    call.Grad(Side::kGpu, *gpu_, sms);
    const std::vector<std::vector<std::byte>> bits = {
        call.pre.Bytes(Side::kGpu), call.y.Bytes(Side::kGpu), call.dpre.Bytes(Side::kGpu)};
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << sms << " SMs";
  }
}

TEST_P(CudaSwigluGemmTest, SeparateFormsAreTheCpus) {
  const Shape3 z{193, 264, 72};
  ASSERT_TRUE(ChooseForward(z, 0, Form::kSeparate) && ChooseGrad(z, 0, Form::kSeparate));
  const SwigluCall call(z, GetParam());
  for (const Side side : kSides) {
    call.Forward(side, At(side));
    call.Grad(side, At(side));
  }
  ExpectClose(call.pre, Kind::kGemm, GetParam(), "pre");
  ExpectClose(call.y, Kind::kFused, GetParam(), "y");
  ExpectClose(call.dpre, Kind::kFused, GetParam(), "dpre");
}

// What custom kernels do not have: a bias in front, and its gradient.
TEST_P(CudaSwigluGemmTest, ABiasAndItsGradientAreTheCpus) {
  const Shape3 z{193, 264, 72};
  const SwigluCall call(z, GetParam());
  for (const Side side : kSides) {
    call.Forward(side, At(side), 0, true);
    call.Grad(side, At(side), 0, true);
  }
  ExpectClose(call.pre, Kind::kGemm, GetParam(), "pre");
  ExpectClose(call.y, Kind::kFused, GetParam(), "y");
  ExpectClose(call.dpre, Kind::kFused, GetParam(), "dpre");
  ExpectClose(call.dbias, Kind::kFused, GetParam(), "dbias");
}

// Far out a gate is shut or open; and not a number stays one.
TEST_P(CudaSwigluGemmTest, HugeGatesGiveLimits) {
  const Shape3 z{16, 16, 16};
  ASSERT_TRUE(ChooseForward(z) && ChooseGrad(z));
  const SwigluCall call(z, GetParam());
  Stream& stream = StreamOf(Side::kGpu);
  const VectorOps& ops = gpu_->vector();
  ops.Fill(stream, call.x[Side::kGpu], 1);
  ops.Fill(stream, call.w1[Side::kGpu].Rows(16, 16), 1.0 / 16);
  ops.Fill(stream, call.dy[Side::kGpu], 1);
  ops.Fill(stream, call.w2[Side::kGpu], 1.0 / 16);
  for (const double gate : {-60000.0, -200.0, 200.0, 60000.0, std::nan("")}) {
    ops.Fill(stream, call.w1[Side::kGpu].Rows(0, 16), gate / 16);
    ops.Fill(stream, call.kept[Side::kGpu], gate);  // up is the same
    call.Forward(Side::kGpu, *gpu_);
    call.Grad(Side::kGpu, *gpu_);
    const double pre = call.pre.Values(Side::kGpu)[7], y = call.y.Values(Side::kGpu)[7];
    const double kept = call.kept.Values(Side::kGpu)[7];
    const double dgate = call.dpre.Values(Side::kGpu)[7], dup = call.dpre.Values(Side::kGpu)[23];
    if (std::isnan(gate)) {
      EXPECT_TRUE(std::isnan(y) && std::isnan(dgate) && std::isnan(dup));
      continue;
    }
    EXPECT_EQ(y, gate < 0 ? 0.0 : pre) << gate;
    EXPECT_EQ(dgate, gate < 0 ? 0.0 : kept) << gate;
    EXPECT_EQ(dup, gate < 0 ? 0.0 : kept) << gate;
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
