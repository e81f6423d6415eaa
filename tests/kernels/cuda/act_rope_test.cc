// Activations, rotation and QK norm against the CPU backend.
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaActTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaActTest);

TEST_P(CudaActTest, ValuesAndGradientsAreTheCpus) {
  for (const ActKind kind :
       {ActKind::kGelu, ActKind::kSwiglu, ActKind::kGeglu, ActKind::kRelu2, ActKind::kGeluErf}) {
    for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{100, 3072}, {33, 1001}, {5, 4}}) {
      Twins twins;
      const Shape wide{rows, PreColumns(kind, n)};
      // Far to both sides too, where e^-z overflows or vanishes.
      const Operand pre = twins.Random(GetParam(), wide, 12),
                    dy = twins.Random(GetParam(), {rows, n});
      const Operand y = Twins::Output(GetParam(), {rows, n}),
                    dpre = Twins::Output(GetParam(), wide);
      for (const Side side : kSides) {
        const ActOps& act = BackendOf(side).act();
        act.Act(StreamOf(side), {.kind = kind, .pre = pre[side], .y = y[side]});
        act.ActGrad(StreamOf(side),
                    {.kind = kind, .dy = dy[side], .pre = pre[side], .dpre = dpre[side]});
      }
      const std::string what =
          "kind " + std::to_string(static_cast<int>(kind)) + " n " + std::to_string(n);
      ExpectClose(y, Kind::kElement, GetParam(), what);
      ExpectClose(dpre, Kind::kElement, GetParam(), what + " gradient");
    }
  }
}

TEST_P(CudaActTest, HugeInputsGiveLimitsNotNan) {
  const Operand pre = Twins::Output(GetParam(), {1, 4}), dy = Twins::Output(GetParam(), {1, 4});
  const Operand y = Twins::Output(GetParam(), {1, 4}), dpre = Twins::Output(GetParam(), {1, 4});
  for (const double x : {-30000.0, 30000.0}) {
    for (const Side side : kSides) {
      BackendOf(side).vector().Fill(StreamOf(side), pre[side], x);
      BackendOf(side).vector().Fill(StreamOf(side), dy[side], 1);
      BackendOf(side).act().Act(StreamOf(side), {.pre = pre[side], .y = y[side]});
      BackendOf(side).act().ActGrad(StreamOf(side),
                                    {.dy = dy[side], .pre = pre[side], .dpre = dpre[side]});
    }
    EXPECT_EQ(std::abs(y.Values(Side::kGpu)[0]), x < 0 ? 0.0 : y.Values(Side::kCpu)[0]);
    EXPECT_EQ(std::abs(dpre.Values(Side::kGpu)[0]), x < 0 ? 0.0 : 1.0);
  }
}

class CudaRopeTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaRopeTest);

struct RopeCase {
  int64_t s = 50, b = 2, a = 6, g = 2, d = 64;
  double percent = 1;
  bool table = true, gains = false, one_plus = false;
  int64_t logical_d = 0;       // of heads stored larger
  bool own_positions = false;  // of each row
};

const RopeCase kRopeCases[] = {
    {},
    {.s = 1000, .d = 128},
    {.d = 100, .percent = 0.5},
    {.d = 119, .percent = 0.3},
    {.gains = true},
    {.s = 700, .d = 128, .gains = true, .one_plus = true},
    {.d = 119, .percent = 0.5, .gains = true},
    {.d = 256, .gains = true},
    {.d = 80, .table = false, .gains = true},
    {.d = 112, .logical_d = 100},
    {.d = 112, .gains = true, .logical_d = 100},
    {.d = 112, .percent = 0.32, .gains = true, .one_plus = true, .logical_d = 100},
    {.d = 128, .gains = true, .logical_d = 119},
    {.d = 128, .table = false, .gains = true, .logical_d = 119},
    {.s = 300, .b = 3, .own_positions = true},
    {.d = 119, .percent = 0.3, .own_positions = true},
    {.s = 300, .b = 3, .d = 128, .gains = true, .own_positions = true},
    {.d = 119, .percent = 0.5, .gains = true, .own_positions = true},
};

struct RopeProblem {
  RopeProblem(const RopeCase& c, DType type) : config(c) {
    Twins twins(3);
    const int64_t rows = c.s * c.b;
    qkv = twins.Random(type, {rows, (c.a + 2 * c.g) * c.d});
    dqkv = twins.Random(type, {rows, (c.a + 2 * c.g) * c.d});
    std::vector<int32_t> at;
    const int64_t places = c.own_positions ? rows : c.s;
    for (int64_t i = 0; i < places; ++i) at.push_back(static_cast<int32_t>((i * 3) % (c.s + 2)));
    positions = Twins::Of<int32_t>({places}, at);
    if (c.table) {
      const RopeConfig rope{.head_dim = c.logical_d > 0 ? c.logical_d : c.d, .percent = c.percent};
      cpu::Array<float> host({c.s + 2, RotatedChannels(rope)});
      FillRopeTable(rope, host.tensor());
      table = Twins::Upload(host);
    }
    ClearPadding(qkv);
    ClearPadding(dqkv);
    if (!c.gains) return;
    q_gain = twins.Random(type, {c.d});
    k_gain = twins.Random(type, {c.d});
    ClearPadding(q_gain);
    ClearPadding(k_gain);
    input = Twins::Output(type, {rows, (c.a + c.g) * c.d});
    rstd = Twins::Output(DType::kF32, {rows, c.a + c.g});
    dq_gain = twins.Random(DType::kF32, {c.d});
    dk_gain = twins.Random(DType::kF32, {c.d});
  }
  RotateShape MakeShape(Side side) const {
    return {.batch = config.b,
            .a = config.a,
            .g = config.g,
            .d = config.d,
            .logical_d = config.logical_d,
            .table = table[side],
            .positions = positions[side],
            .q_gain = q_gain[side],
            .k_gain = k_gain[side],
            .one_plus = config.one_plus};
  }
  // Channels of stored heads behind the logical ones.
  bool IsPadding(int64_t element) const {
    return config.logical_d > 0 && element % config.d >= config.logical_d;
  }
  void ClearPadding(const Operand& x) const {
    std::vector<std::byte> bytes = x.Bytes(Side::kCpu);
    const int64_t size = SizeOf(x.dtype());
    for (int64_t i = 0; i < x.size(); ++i) {
      if (IsPadding(i))
        std::memset(&bytes[static_cast<size_t>(i * size)], 0, static_cast<size_t>(size));
    }
    x.SetBoth(bytes.data());
  }
  void ExpectZeroPadding(const Operand& x, const std::string& what) const {
    const std::vector<double> values = x.Values(Side::kGpu);
    for (int64_t i = 0; i < x.size(); ++i) {
      if (IsPadding(i)) {
        ASSERT_EQ(values[static_cast<size_t>(i)], 0.0) << what << " " << i;
      }
    }
  }
  void Forward(Side side) const {
    BackendOf(side).rope().Rotate(
        StreamOf(side),
        {.shape = MakeShape(side), .qkv = qkv[side], .input = input[side], .rstd = rstd[side]});
  }
  void Backward(Side side, GradMode mode) const {
    RotateGradArgs a{.shape = MakeShape(side),
                     .dqkv = dqkv[side],
                     .input = input[side],
                     .rstd = rstd[side],
                     .mode = mode,
                     .dq_gain = dq_gain[side],
                     .dk_gain = dk_gain[side]};
    SideScratch scratch(side, BackendOf(side).rope().WorkspaceBytes(a));
    a.workspace = scratch.workspace();
    BackendOf(side).rope().RotateGrad(StreamOf(side), a);
    StreamOf(side).Synchronize();
  }
  RopeCase config;
  Operand qkv, dqkv, positions, table, q_gain, k_gain, input, rstd, dq_gain, dk_gain;
};

TEST_P(CudaRopeTest, RotationAndGradientAreTheCpus) {
  for (const RopeCase& c : kRopeCases) {
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAdd}) {
      const RopeProblem p(c, GetParam());
      const std::string what = "d " + std::to_string(c.d) + (c.gains ? " with norm" : "");
      for (const Side side : kSides) p.Forward(side);
      ExpectClose(p.qkv, Kind::kSum, GetParam(), what);
      if (c.gains) {
        ExpectSameBits(p.input, what + " input");
        ExpectClose(p.rstd, Kind::kSum, DType::kF32, what + " rstd");
        p.rstd.Share();
      }
      for (const Side side : kSides) p.Backward(side, mode);
      ExpectClose(p.dqkv, Kind::kSum, GetParam(), what + " gradient");
      p.ExpectZeroPadding(p.qkv, what);
      p.ExpectZeroPadding(p.dqkv, what + " gradient");
      if (!c.gains) continue;
      ExpectClose(p.dq_gain, Kind::kSum, DType::kF32, what + " dq_gain");
      ExpectClose(p.dk_gain, Kind::kSum, DType::kF32, what + " dk_gain");
    }
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
