// The optimizer's part of a step (square sums, the scalar block, AdamW, SGD) against the CPU
// backend.
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaUpdateTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaUpdateTest);

constexpr int64_t kElements = 100003;

TEST_P(CudaUpdateTest, AdamWIsTheCpusAndSkips) {
  for (const int64_t skip : {0, 1}) {
    Twins twins;
    const Operand gradient = twins.Random(DType::kF32, {kElements}, 8);
    const Operand master = twins.Random(DType::kF32, {kElements}),
                  m = twins.Random(DType::kF32, {kElements});
    const Operand v = Twins::Output(DType::kF32, {kElements});
    const Operand copy =
        GetParam() == DType::kF32 ? Operand() : twins.Random(GetParam(), {kElements});
    const Operand scalars = ScalarsOfStep(skip);
    const auto before = master.Bytes(Side::kGpu);
    for (const Side side : kSides) {
      BackendOf(side).vector().Fill(StreamOf(side), v[side], 0.01);
      for (int step = 0; step < 3; ++step) {
        BackendOf(side).update().AdamW(StreamOf(side), {.gradient = gradient[side],
                                                        .master = master[side],
                                                        .m = m[side],
                                                        .v = v[side],
                                                        .model_copy = copy[side],
                                                        .decay = true,
                                                        .scalars = ScalarsAt(scalars, side)});
      }
    }
    EXPECT_EQ(master.Bytes(Side::kGpu) == before, skip == 1);
    ExpectClose(master, Kind::kElement, DType::kF32, "master");
    ExpectClose(m, Kind::kElement, DType::kF32, "m");
    ExpectClose(v, Kind::kElement, DType::kF32, "v");
    if (copy[Side::kCpu]) ExpectClose(copy, Kind::kElement, GetParam(), "copy");
  }
}

TEST_P(CudaUpdateTest, SgdIsTheCpusAndSkips) {
  for (const bool with_momentum : {true, false}) {
    Twins twins;
    const Operand gradient = twins.Random(DType::kF32, {kElements}, 8);
    const Operand master = twins.Random(DType::kF32, {kElements});
    const Operand momentum = with_momentum ? twins.Random(DType::kF32, {kElements}) : Operand();
    const Operand copy =
        GetParam() == DType::kF32 ? Operand() : twins.Random(GetParam(), {kElements});
    for (const int64_t skip : {0, 1}) {
      const Operand scalars = ScalarsOfStep(skip);
      for (const Side side : kSides) {
        BackendOf(side).update().Sgd(StreamOf(side), {.gradient = gradient[side],
                                                      .master = master[side],
                                                      .momentum = momentum[side],
                                                      .model_copy = copy[side],
                                                      .decay = skip == 0,
                                                      .mu = with_momentum ? 0.9 : 0.0,
                                                      .scalars = ScalarsAt(scalars, side)});
      }
    }
    ExpectClose(master, Kind::kElement, DType::kF32, "master");
    if (with_momentum) ExpectClose(momentum, Kind::kElement, DType::kF32, "momentum");
    if (copy[Side::kCpu]) ExpectClose(copy, Kind::kElement, GetParam(), "copy");
  }
}

TEST_F(CudaUpdateTest, SquareSumLeavesOutAndCountsWhatIsNotFinite) {
  for (const int64_t n : {int64_t{1}, int64_t{9}, kElements, int64_t{5000000}}) {
    Twins twins;
    cpu::Uniform random(3);
    cpu::Array<float> values = random.Make<float>({n}, 3);
    if (n > 100) {
      values[17] = std::numeric_limits<float>::infinity();
      values[18] = -std::numeric_limits<float>::infinity();
      values[n - 1] = std::numeric_limits<float>::quiet_NaN();
    }
    const Operand gradient = Twins::Upload(values), out = twins.Random(DType::kF64, {2});
    for (const Side side : kSides) {
      BackendOf(side).update().SquareSum(StreamOf(side),
                                         {.gradient = gradient[side], .out = out[side]});
    }
    const auto actual = out.Values(Side::kGpu), expected = out.Values(Side::kCpu);
    EXPECT_NEAR(actual[0], expected[0], 1e-13 * std::abs(expected[0])) << n;
    EXPECT_NEAR(actual[1], expected[1], 1e-12) << n;
  }
}

// The block after several steps, an overflow among them: integers equal, doubles within libm's last
// places.
TEST_F(CudaUpdateTest, AdvanceMovesTheBlockAsTheCpuDoes) {
  StepConstants constants{.max_lr = 3e-4,
                          .min_lr = 3e-5,
                          .warmup_samples = 32,
                          .decay_samples = 512,
                          .weight_decay = 0.1,
                          .clip_grad = 1,
                          .batch_samples = 16,
                          .nominal_tokens = 16384};
  constants.loss_scale = {.kind = LossScaleKind::kDynamic, .initial = 65536, .window = 3};
  const StepScalars initial = InitialStepScalars(constants);
  Operand scalars(DType::kU8, {static_cast<int64_t>(sizeof(initial))});
  scalars.SetBoth(&initial);
  for (int step = 0; step < 12; ++step) {
    EndOfStep vector{.sum_squares = 1e18 * (step + 1), .loss = 1e5, .tokens = 16000};
    if (step == 2 || step == 5) vector.nonfinite = 3;
    Operand on_both(DType::kU8, {static_cast<int64_t>(sizeof(vector))});
    on_both.SetBoth(&vector);
    for (const Side side : kSides) {
      BackendOf(side).update().Advance(
          StreamOf(side), static_cast<StepScalars*>(scalars[side].data),
          static_cast<const EndOfStep*>(on_both[side].data), constants);
    }
    StepScalars gpu, cpu;
    std::memcpy(&gpu, scalars.Bytes(Side::kGpu).data(), sizeof(gpu));
    std::memcpy(&cpu, scalars.Bytes(Side::kCpu).data(), sizeof(cpu));
    EXPECT_EQ(gpu.consumed_samples, cpu.consumed_samples);
    EXPECT_EQ(gpu.schedule_samples, cpu.schedule_samples);
    EXPECT_EQ(gpu.adam_step, cpu.adam_step);
    EXPECT_EQ(gpu.skip, cpu.skip);
    EXPECT_EQ(gpu.skipped_steps, cpu.skipped_steps);
    EXPECT_EQ(gpu.loss_scale, cpu.loss_scale);
    EXPECT_EQ(gpu.hysteresis, cpu.hysteresis);
    EXPECT_NEAR(gpu.lr, cpu.lr, 1e-14 * std::abs(cpu.lr));
    EXPECT_NEAR(gpu.factor, cpu.factor, 1e-14 * std::abs(cpu.factor));
    EXPECT_NEAR(gpu.grad_norm, cpu.grad_norm, 1e-14 * std::abs(cpu.grad_norm));
    EXPECT_NEAR(gpu.bias_correction2, cpu.bias_correction2, 1e-13);
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
