// Attention against the CPU backend: cuDNN's plans and the custom kernels, over the properties that
// decide between them. Views are of one packed projection, as in the engine.
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaAttentionTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaAttentionTest);

struct Case {
  int64_t s = 200, b = 2, a = 4, g = 4, d = 64;
  int64_t logical_d = 0;  // of heads stored larger, with zeros
  int64_t window = 0, q0 = 0, k0 = 0;
  bool causal = true, alibi = false, deterministic = true;
  double dropout = 0;

  std::string Text() const {
    return "s " + std::to_string(s) + " a " + std::to_string(a) + " g " + std::to_string(g) +
           " d " + std::to_string(d) + " window " + std::to_string(window) + " q0 " +
           std::to_string(q0) + (alibi ? " alibi" : "") + (causal ? "" : " all") +
           (dropout > 0 ? " dropout" : "") + (deterministic ? " deterministic" : "");
  }
};

const Case kCases[] = {
    {},
    {.deterministic = false},
    {.s = 320, .a = 8, .g = 1, .d = 128},
    {.s = 320, .a = 8, .g = 2, .d = 128, .deterministic = false},
    {.s = 320, .a = 8, .g = 1, .d = 128, .deterministic = false},
    {.s = 1000, .b = 1, .a = 2, .g = 2},
    {.s = 300, .d = 80},
    {.s = 300, .d = 96, .window = 100},
    {.s = 300, .a = 4, .g = 2, .d = 128, .window = 77, .deterministic = false},
    {.s = 150, .b = 1, .a = 2, .g = 1, .d = 160},
    {.s = 150, .d = 112},
    // What only the custom kernels do.
    {.s = 150, .d = 100},
    {.s = 150, .a = 4, .g = 2, .d = 119},
    {.s = 131, .d = 20, .causal = false},
    {.s = 200, .dropout = 0.1},
    {.s = 150, .a = 6, .g = 2, .d = 128, .window = 40, .dropout = 0.3},
    {.s = 150, .a = 6, .g = 3, .alibi = true},
    {.s = 130, .q0 = 64, .alibi = true},
    {.s = 130, .q0 = 0, .k0 = 70},  // the first queries see no key
    {.s = 130, .window = 30, .q0 = 100},
    // Windows longer than the chunk: all keys are seen; some.
    {.s = 130, .window = 1000, .q0 = 512},
    {.s = 130, .window = 520, .q0 = 512},
};

struct Problem {
  Problem(const Case& c, DType type) : config(c), dtype(type) {
    Twins twins(13);
    const int64_t width = (c.a + 2 * c.g) * c.d;
    qkv = twins.Random(type, {c.s * c.b, width}, 1.5);
    dqkv = Twins::Output(type, {c.s * c.b, width});
    o = Twins::Output(type, {c.s * c.b, c.a * c.d});
    dout = twins.Random(type, {c.s * c.b, c.a * c.d});
    ClearPadding(qkv);
    ClearPadding(dout);
    lse = Twins::Output(DType::kF32, {c.b, c.a, c.s});
    std::vector<int32_t> at;
    for (int64_t i = 0; i < c.s; ++i) at.push_back(static_cast<int32_t>(i + 5));
    positions = Twins::Of<int32_t>({c.s}, at);
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < c.b; ++i) numbers.push_back(77 + (int64_t{3} << 34) * i);
    samples = Twins::Of<int64_t>({c.b}, numbers);
    cpu::Array<float> host({c.a});
    FillAlibiSlopes(c.a + 3, 2, host.tensor());
    if (c.alibi) slopes = Twins::Upload(host);
  }
  int64_t Channels() const { return config.logical_d > 0 ? config.logical_d : config.d; }
  // Channels of stored heads behind the logical ones.
  void ClearPadding(const Operand& x) const {
    if (Channels() == config.d) return;
    std::vector<std::byte> bytes = x.Bytes(Side::kCpu);
    const int64_t size = SizeOf(x.dtype());
    for (int64_t i = 0; i < x.size(); ++i) {
      if (i % config.d < Channels()) continue;
      std::memset(&bytes[static_cast<size_t>(i * size)], 0, static_cast<size_t>(size));
    }
    x.SetBoth(bytes.data());
  }
  HeadView View(const Operand& x, Side side, int64_t first_head, int64_t heads) const {
    return {.data = static_cast<char*>(x[side].data) + first_head * config.d * SizeOf(dtype),
            .s_stride = config.b * heads * config.d,
            .b_stride = heads * config.d,
            .head_stride = config.d};
  }
  HeadView Packed(const Operand& x, Side side, int which) const {
    const int64_t first[] = {0, config.a, config.a + config.g};
    return View(x, side, first[which], config.a + 2 * config.g);
  }
  AttentionShape MakeShape(Side side) const {
    return {.dtype = dtype,
            .s = config.s,
            .b = config.b,
            .a = config.a,
            .g = config.g,
            .d = config.d,
            .scale = 1 / std::sqrt(static_cast<double>(Channels())),
            .causal = config.causal,
            .window = config.window,
            .q0 = config.q0,
            .k0 = config.k0,
            .slopes = slopes[side]};
  }
  AttentionDropout MakeDropout(Side side) const {
    if (config.dropout == 0) return {};
    return {.rate = MakeDropoutRate(config.dropout),
            .key = 0x0123456789ABCDEFU,
            .samples = samples[side],
            .positions = positions[side],
            .first_head = 6};
  }
  AttentionForwardArgs ForwardArgs(Side side) const {
    return {.shape = MakeShape(side),
            .q = Packed(qkv, side, 0),
            .k = Packed(qkv, side, 1),
            .v = Packed(qkv, side, 2),
            .dropout = MakeDropout(side),
            .o = View(o, side, 0, config.a),
            .lse = lse[side]};
  }
  void Forward(Side side) const {
    AttentionForwardArgs a = ForwardArgs(side);
    AttentionOps& attention = BackendOf(side).attention();
    SideScratch scratch(side, attention.Plan(a));
    a.workspace = scratch.workspace();
    attention.Forward(StreamOf(side), a);
    StreamOf(side).Synchronize();
  }
  AttentionGradArgs GradArgs(Side side) const {
    return {.shape = MakeShape(side),
            .q = Packed(qkv, side, 0),
            .k = Packed(qkv, side, 1),
            .v = Packed(qkv, side, 2),
            .dropout = MakeDropout(side),
            .o = View(o, side, 0, config.a),
            .lse = lse[side],
            .do_ = View(dout, side, 0, config.a),
            .dq = Packed(dqkv, side, 0),
            .dk = Packed(dqkv, side, 1),
            .dv = Packed(dqkv, side, 2),
            .deterministic = config.deterministic};
  }
  // Workspace of the gradient on the GPU.
  int64_t GradBytes() const { return BackendOf(Side::kGpu).attention().Plan(GradArgs(Side::kGpu)); }
  void Grad(Side side) const {
    AttentionGradArgs a = GradArgs(side);
    AttentionOps& attention = BackendOf(side).attention();
    SideScratch scratch(side, attention.Plan(a));
    a.workspace = scratch.workspace();
    attention.Grad(StreamOf(side), a);
    StreamOf(side).Synchronize();
  }
  // Log-sum-exps, which are -infinity where a query sees no key.
  void ExpectLse(const std::string& what) const {
    const auto actual = lse.Values(Side::kGpu), expected = lse.Values(Side::kCpu);
    for (size_t i = 0; i < actual.size(); ++i) {
      if (std::isinf(expected[i])) {
        ASSERT_EQ(actual[i], expected[i]) << what << " lse " << i;
      } else {
        ASSERT_NEAR(actual[i], expected[i], 2e-5) << what << " lse " << i;
      }
    }
  }
  Case config;
  DType dtype;
  Operand qkv, dqkv, o, dout, lse, positions, samples, slopes;
};

void ExpectTheCpus(const Case& c, DType type) {
  const Problem p(c, type);
  for (const Side side : kSides) p.Forward(side);
  ExpectClose(p.o, Kind::kAttention, type, c.Text() + " o");
  p.ExpectLse(c.Text());
  p.o.Share();
  p.lse.Share();
  for (const Side side : kSides) p.Grad(side);
  ExpectClose(p.dqkv, Kind::kAttention, type, c.Text() + " dqkv");
}

TEST_P(CudaAttentionTest, ForwardAndGradientAreTheCpus) {
  for (const Case& c : kCases) ExpectTheCpus(c, GetParam());
}

// Each tile size with as few heads as show two tiles: for the sanitizers, which take minutes over
// the cases above.
TEST_P(CudaAttentionTest, CustomKernelsOnFewHeads) {
  for (const int64_t d : {20, 100, 132}) {
    ExpectTheCpus({.s = 130, .b = 1, .a = 1, .g = 1, .d = d, .dropout = 0.1}, GetParam());
  }
}

// Heads of 100 and 119 as the engine stores them, zeros behind their channels: cuDNN has plans for
// both, as neither has for the logical sizes, and the zeros stay.
TEST_P(CudaAttentionTest, PaddedHeadsAreCudnns) {
  for (const auto& [stored, logical] : {std::pair<int64_t, int64_t>{112, 100}, {128, 119}}) {
    for (const bool deterministic : {true, false}) {
      const Case c{.s = 300,
                   .a = 4,
                   .g = 2,
                   .d = stored,
                   .logical_d = logical,
                   .deterministic = deterministic};
      ExpectTheCpus(c, GetParam());
      const Problem p(c, GetParam());
      for (const Side side : kSides) p.Forward(side);
      p.Grad(Side::kGpu);
      for (const Operand* x : {&p.o, &p.dqkv}) {
        const std::vector<double> values = x->Values(Side::kGpu);
        for (int64_t i = 0; i < x->size(); ++i) {
          if (i % stored < logical) continue;
          ASSERT_EQ(values[static_cast<size_t>(i)], 0.0) << c.Text() << " " << i;
        }
      }
    }
    // The custom gradient needs a sum per row; cuDNN's at least fp32 sums of all dQ.
    const Case c{.s = 300, .a = 4, .g = 2, .d = stored, .deterministic = false};
    const int64_t per_row = c.b * c.a * c.s * int64_t{sizeof(float)};
    const bool half = SizeOf(GetParam()) == 2;
    EXPECT_EQ(Problem(c, GetParam()).GradBytes() >= per_row * stored, half) << stored;
    Case custom = c;
    custom.d = logical;
    EXPECT_EQ(Problem(custom, GetParam()).GradBytes(), per_row) << logical;
  }
}

TEST_P(CudaAttentionTest, WhatCudnnHasIsCudnns) {
  const bool half = SizeOf(GetParam()) == 2;
  const auto kernels_of = [](const Case& c) {
    const auto gpu = LoadCudaBackend(TestConfig()).value();
    const Problem p(c, GetParam());
    gpu->attention().Plan(p.ForwardArgs(Side::kGpu));
    gpu->attention().Plan(p.GradArgs(Side::kGpu));
    return gpu->AttentionKernels();
  };
  for (const bool deterministic : {true, false}) {
    for (Case c : {Case{}, Case{.d = 80}, Case{.d = 96, .window = 100}, Case{.d = 128},
                   Case{.a = 8, .g = 1, .d = 128}, Case{.s = 1000, .b = 1, .d = 160}}) {
      c.deterministic = deterministic;
      EXPECT_EQ(kernels_of(c), half ? "forward cuDNN, backward cuDNN" : "forward own, backward own")
          << c.Text();
    }
  }
  EXPECT_EQ(kernels_of({.d = 100}), "forward own, backward own");
  EXPECT_EQ(kernels_of({.dropout = 0.1}), "forward own, backward own");
}

// Deterministic gradients take b a s s 2 bytes of workspace: those of 1.2 GB are computed three
// samples at a time.
TEST_P(CudaAttentionTest, DeterministicGradientsInPartsOfTheBatchAreTheCpus) {
  if (SizeOf(GetParam()) != 2)
    GTEST_SKIP() << "gradients in fp32 are the custom kernels', never in parts";
  const Case c{.s = 2048, .b = 9, .a = 16, .g = 16};
  EXPECT_LT(Problem(c, GetParam()).GradBytes(), c.b * c.a * c.s * c.s * 2);
  ExpectTheCpus(c, GetParam());
}

// Where a block gets too little shared memory for the custom kernels' tiles, planning says so; what
// cuDNN computes and what small tiles do goes on.
TEST_P(CudaAttentionTest, TooLittleSharedMemoryIsToldWhenPlanned) {
  const auto small = LoadCudaBackend({.shared_bytes = 101376}).value();
  const auto plan = [&small](const Case& c) {
    small->attention().Plan(Problem(c, GetParam()).GradArgs(Side::kGpu));
  };
  plan({.d = 64, .dropout = 0.1});
  if (SizeOf(GetParam()) == 2) plan({.d = 128});
  try {
    plan({.d = 128, .dropout = 0.1});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DeviceError& error) {
    const std::string what = error.what();
    for (const char* part : {"cuda device 0: attention with heads of 128", "of which", "101376"})
      EXPECT_NE(what.find(part), std::string::npos) << part << " in: " << what;
  }
}

TEST_P(CudaAttentionTest, DeterministicGradientsHaveTheSameBitsInEveryRun) {
  for (const Case& c :
       {Case{.s = 600, .b = 3, .d = 128}, Case{.s = 300, .d = 64, .dropout = 0.1}}) {
    const Problem p(c, GetParam());
    p.Forward(Side::kGpu);
    const auto o = p.o.Bytes(Side::kGpu);
    p.Grad(Side::kGpu);
    const auto first = p.dqkv.Bytes(Side::kGpu);
    for (int run = 0; run < 3; ++run) {
      p.o.Poison();
      p.dqkv.Poison();
      p.Forward(Side::kGpu);
      EXPECT_EQ(p.o.Bytes(Side::kGpu), o);
      p.Grad(Side::kGpu);
      EXPECT_EQ(p.dqkv.Bytes(Side::kGpu), first);
    }
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
