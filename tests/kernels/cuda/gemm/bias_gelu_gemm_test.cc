// The custom GEMMs that store their sums (custom_gemm.h), with and without GELU, against the CPU
// backend.
#include "tests/kernels/cuda/gemm/custom_gemm.h"

namespace mt::kernels::cuda {
namespace {

class CudaBiasGeluGemmTest : public CustomGemmTest {
 protected:
  bool Choose(Epilogue epilogue, const Shape3& z, int sms = 0) const {
    return CustomGemmTest::Choose({.transpose_a = true,
                                   .m = z.features,
                                   .n = z.tokens,
                                   .k = z.inner,
                                   .epilogue = epilogue,
                                   .sms = sms});
  }
  template <class Args>
  void Run(Side side, void (LinearOps::*op)(Stream&, const Args&) const, Args args) const {
    LinearOps& ops = At(side).linear();
    SideScratch scratch(side, ops.Plan(args));
    args.workspace = scratch.workspace();
    (ops.*op)(StreamOf(side), args);
    StreamOf(side).Synchronize();
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CudaBiasGeluGemmTest, testing::Values(DType::kBf16, DType::kF16),
                         TypeName);

// Operands of one call, on both sides.
struct Call {
  Call(const Shape3& z, DType dtype)
      : x(twins.Random(dtype, {z.tokens, z.inner})),
        w(twins.Random(dtype, {z.features, z.inner}, 0.3)),
        bias(twins.Random(dtype, {z.features})),
        pre(Twins::Output(dtype, {z.tokens, z.features})),
        y(Twins::Output(dtype, {z.tokens, z.features})) {}
  LinearForwardArgs Forward(Side side, int sms = 0) const {
    return {.x = x[side],
            .w = w[side],
            .bias = bias[side],
            .y = y[side],
            .workspace = {},
            .sm_budget = sms};
  }
  LinearForwardActArgs ForwardAct(Side side, bool with_bias, int sms = 0) const {
    return {.x = x[side],
            .w = w[side],
            .bias = with_bias ? bias[side] : Tensor{},
            .pre = pre[side],
            .y = y[side],
            .workspace = {},
            .sm_budget = sms};
  }

  Twins twins;
  Operand x, w, bias, pre, y;
};

TEST_P(CudaBiasGeluGemmTest, SumsWithBiasAreTheCpus) {
  for (const Shape3& z : kCustomGemmShapes) {
    ASSERT_TRUE(Choose(Epilogue::kBias, z));
    const Call call(z, GetParam());
    for (const Side side : kSides) Run(side, &LinearOps::Forward, call.Forward(side));
    ExpectClose(call.y, Kind::kGemm, GetParam(), z.Text());
  }
  EXPECT_EQ(Entries(), std::size(kCustomGemmShapes)) << "nothing was timed";
}

TEST_P(CudaBiasGeluGemmTest, GeluIsTheCpus) {
  for (const Shape3& z : kCustomGemmShapes) {
    for (const bool bias : {false, true}) {
      ASSERT_TRUE(Choose(bias ? Epilogue::kGeluAuxBias : Epilogue::kGeluAux, z));
      const Call call(z, GetParam());
      for (const Side side : kSides) Run(side, &LinearOps::ForwardAct, call.ForwardAct(side, bias));
      ExpectClose(call.pre, Kind::kGemm, GetParam(), z.Text() + " pre");
      ExpectClose(call.y, Kind::kFused, GetParam(), z.Text() + (bias ? " bias" : ""));
    }
  }
  EXPECT_EQ(Entries(), 2 * std::size(kCustomGemmShapes)) << "nothing was timed";
}

TEST_P(CudaBiasGeluGemmTest, SameBitsInEveryRunAndOnFewerSms) {
  const Shape3 z{2000, 1032, 136};
  const Call call(z, GetParam());
  std::vector<std::vector<std::byte>> first;
  for (const int sms : {0, 0, 2, 101}) {
    ASSERT_TRUE(Choose(Epilogue::kGeluAuxBias, z, sms));
    ASSERT_TRUE(Choose(Epilogue::kBias, z, sms));
    for (const Operand* out : {&call.pre, &call.y}) out->Poison();
    Run(Side::kGpu, &LinearOps::ForwardAct, call.ForwardAct(Side::kGpu, true, sms));
    std::vector<std::vector<std::byte>> bits = {call.pre.Bytes(Side::kGpu),
                                                call.y.Bytes(Side::kGpu)};
    Run(Side::kGpu, &LinearOps::Forward, call.Forward(Side::kGpu, sms));
    EXPECT_EQ(call.y.Bytes(Side::kGpu), bits[0]) << "what GELU is taken of is the plain GEMM";
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << sms << " SMs";
  }
}

// Far out GELU is 0 or its argument; and not a number stays one.
TEST_P(CudaBiasGeluGemmTest, GeluOfHugeSumsIsItsLimit) {
  const Shape3 z{16, 16, 16};
  ASSERT_TRUE(Choose(Epilogue::kGeluAuxBias, z));
  const Call call(z, GetParam());
  Stream& stream = StreamOf(Side::kGpu);
  for (const double value : {-60000.0, -100.0, 100.0, 60000.0, std::nan("")}) {
    const VectorOps& ops = gpu_->vector();
    ops.Fill(stream, call.x[Side::kGpu], 0);
    ops.Fill(stream, call.w[Side::kGpu], 0);
    ops.Fill(stream, call.bias[Side::kGpu], value);
    Run(Side::kGpu, &LinearOps::ForwardAct, call.ForwardAct(Side::kGpu, true));
    const double pre = call.pre.Values(Side::kGpu)[7], y = call.y.Values(Side::kGpu)[7];
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(pre) && std::isnan(y)) << pre << " " << y;
    } else {
      EXPECT_EQ(y, value < 0 ? 0.0 : pre) << value;
    }
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
