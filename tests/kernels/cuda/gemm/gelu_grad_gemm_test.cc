// The custom GEMM with GELU's slope and column sums (custom_gemm.h) against the CPU backend.
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "tests/kernels/cuda/gemm/custom_gemm.h"

namespace mt::kernels::cuda {
namespace {

class CudaGeluGradGemmTest : public CustomGemmTest {
 protected:
  bool Choose(const Shape3& z, int sms = 0) const {
    return CustomGemmTest::Choose({.m = z.features,
                                   .n = z.tokens,
                                   .k = z.inner,
                                   .epilogue = Epilogue::kGeluGradBias,
                                   .sms = sms});
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CudaGeluGradGemmTest, testing::Values(DType::kBf16, DType::kF16),
                         TypeName);

// Operands of one call, on both sides.
struct GeluGradCall {
  GeluGradCall(const Shape3& z, DType dtype)
      : dy(twins.Random(dtype, {z.tokens, z.inner})),
        w(twins.Random(dtype, {z.inner, z.features}, 0.2)),
        pre(twins.Random(dtype, {z.tokens, z.features}, 4)),
        dpre(Twins::Output(dtype, {z.tokens, z.features})),
        dbias(twins.Random(DType::kF32, {z.features})) {}

  void Run(Side side, Backend& backend, GradMode mode, int sm_budget = 0) const {
    LinearInputGradActArgs args{.dy = dy[side],
                                .w = w[side],
                                .pre = pre[side],
                                .dpre = dpre[side],
                                .mode = mode,
                                .dbias = dbias[side],
                                .workspace = {},
                                .sm_budget = sm_budget};
    SideScratch scratch(side, backend.linear().Plan(args));
    args.workspace = scratch.workspace();
    backend.linear().InputGradAct(StreamOf(side), args);
    StreamOf(side).Synchronize();
  }

  Twins twins;
  Operand dy, w, pre, dpre, dbias;
};

TEST_P(CudaGeluGradGemmTest, GradientAndSumsAreTheCpus) {
  for (const Shape3& z : kCustomGemmShapes) {
    ASSERT_TRUE(Choose(z));
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAdd}) {
      const GeluGradCall call(z, GetParam());
      for (const Side side : kSides) call.Run(side, At(side), mode);
      ExpectClose(call.dpre, Kind::kFused, GetParam(), z.Text());
      ExpectClose(call.dbias, Kind::kFused, GetParam(), z.Text() + " sums");
    }
  }
  EXPECT_EQ(Entries(), std::size(kCustomGemmShapes)) << "nothing was timed";
}

TEST_P(CudaGeluGradGemmTest, SameBitsInEveryRunAndOnFewerSms) {
  const Shape3 z{2000, 1032, 136};
  const GeluGradCall call(z, GetParam());
  std::vector<std::vector<std::byte>> first;
  for (const int sms : {0, 0, 2, 101}) {
    ASSERT_TRUE(Choose(z, sms));
    call.dpre.Poison();
    call.Run(Side::kGpu, *gpu_, GradMode::kOverwrite, sms);
    const std::vector<std::vector<std::byte>> bits = {call.dpre.Bytes(Side::kGpu),
                                                      call.dbias.Bytes(Side::kGpu)};
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << sms << " SMs";
  }
}

// GELU's slope in fp64, from its definition.
double Slope(double x) {
  const double scale = 2 * std::sqrt(2 / std::numbers::pi), cubic = 0.044715;
  const double e = std::exp(-scale * (x + cubic * x * x * x)), s = 1 / (1 + e);
  return s == 0 ? 0 : s + x * scale * (1 + 3 * cubic * x * x) * s * (e * s);
}

// Each value of the type up to 16 on its own, so that no norm hides the tail: what
// rounding to the type allows, and 2^-14 of the slope for the arithmetic (where |x| < 2, about the
// slope's zero, 2^-20 in all). The CPU keeps the same bound.
TEST_P(CudaGeluGradGemmTest, EachSlopeIsRightInItsTail) {
  const Shape3 z{256, 256, 16};
  ASSERT_TRUE(Choose(z));
  const GeluGradCall call(z, GetParam());
  std::vector<uint16_t> all(size_t{1} << 16);
  std::iota(all.begin(), all.end(), uint16_t{0});
  call.pre.SetBoth(all.data());
  const double ulp = GetParam() == DType::kBf16 ? 0x1p-8 : 0x1p-11;
  const double smallest = GetParam() == DType::kBf16 ? 0x1p-110 : 0x1p-24;
  for (const Side side : kSides) {
    Backend& backend = At(side);
    backend.vector().Fill(StreamOf(side), call.dy[side], 1);
    backend.vector().Fill(StreamOf(side), call.w[side], 0x1p-4);  // products are exactly 1
    call.Run(side, backend, GradMode::kOverwrite);
    const std::vector<double> pre = call.pre.Values(side), dpre = call.dpre.Values(side);
    int wrong = 0;
    for (size_t i = 0; i < pre.size() && wrong < 5; ++i) {
      if (!(std::abs(pre[i]) <= 16)) continue;  // beyond: the next test
      const double slope = Slope(pre[i]);
      const double bound =
          std::abs(slope) * (ulp + 0x1p-14) + smallest + (std::abs(pre[i]) < 2 ? 0x1p-20 : 0);
      if (std::abs(dpre[i] - slope) <= bound) continue;
      ++wrong;
      ADD_FAILURE() << (side == Side::kCpu ? "CPU" : "GPU") << ": at " << pre[i] << " the slope is "
                    << dpre[i] << " for " << slope;
    }
  }
}

// Where the slope is 0 or 1; and not a number stays one.
TEST_P(CudaGeluGradGemmTest, HugeInputsGiveLimits) {
  const Shape3 z{16, 16, 16};
  ASSERT_TRUE(Choose(z));
  const GeluGradCall call(z, GetParam());
  const double inf = std::numeric_limits<double>::infinity();
  for (const double x : {-inf, -60000.0, 60000.0, inf, inf - inf}) {
    Backend& gpu = *gpu_;
    gpu.vector().Fill(StreamOf(Side::kGpu), call.pre[Side::kGpu], x);
    gpu.vector().Fill(StreamOf(Side::kGpu), call.dy[Side::kGpu], 1);
    gpu.vector().Fill(StreamOf(Side::kGpu), call.w[Side::kGpu], 0.5);
    call.Run(Side::kGpu, gpu, GradMode::kOverwrite);
    const double dpre = call.dpre.Values(Side::kGpu)[7], sum = call.dbias.Values(Side::kGpu)[7];
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(dpre) && std::isnan(sum)) << dpre << " " << sum;
    } else {
      EXPECT_EQ(dpre, x < 0 ? 0.0 : 8.0) << x;
      EXPECT_EQ(sum, x < 0 ? 0.0 : 128.0) << x;
    }
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
