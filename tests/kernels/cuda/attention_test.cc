// Attention against the CPU backend: cuDNN's plans and the own kernels, over what decides between
// them. Views are of one packed projection, as the engine has them.
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaAttentionTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaAttentionTest);

struct Case {
  int64_t s = 200, b = 2, a = 4, g = 4, d = 64;
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
    {.s = 1000, .b = 1, .a = 2, .g = 2},
    {.s = 300, .d = 80},
    {.s = 300, .d = 96, .window = 100},
    {.s = 300, .a = 4, .g = 2, .d = 128, .window = 77, .deterministic = false},
    {.s = 150, .b = 1, .a = 2, .g = 1, .d = 160},
    {.s = 150, .d = 112},
    // What only the own kernels do.
    {.s = 150, .d = 100},
    {.s = 150, .a = 4, .g = 2, .d = 119},
    {.s = 131, .d = 20, .causal = false},
    {.s = 200, .dropout = 0.1},
    {.s = 150, .a = 6, .g = 2, .d = 128, .window = 40, .dropout = 0.3},
    {.s = 150, .a = 6, .g = 3, .alibi = true},
    {.s = 130, .q0 = 64, .alibi = true},
    {.s = 130, .q0 = 0, .k0 = 70},  // the first queries see no key
    {.s = 130, .window = 30, .q0 = 100},
};

struct Problem {
  Problem(const Case& c, DType type) : config(c), dtype(type) {
    Twins twins(13);
    const int64_t width = (c.a + 2 * c.g) * c.d;
    qkv = twins.Random(type, {c.s * c.b, width}, 1.5);
    dqkv = Twins::Output(type, {c.s * c.b, width});
    o = Twins::Output(type, {c.s * c.b, c.a * c.d});
    dout = twins.Random(type, {c.s * c.b, c.a * c.d});
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
            .scale = 1 / std::sqrt(static_cast<double>(config.d)),
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
  void Forward(Side side) const {
    AttentionForwardArgs a{.shape = MakeShape(side),
                           .q = Packed(qkv, side, 0),
                           .k = Packed(qkv, side, 1),
                           .v = Packed(qkv, side, 2),
                           .dropout = MakeDropout(side),
                           .o = View(o, side, 0, config.a),
                           .lse = lse[side]};
    const AttentionOps& attention = BackendOf(side).attention();
    SideScratch scratch(side, attention.WorkspaceBytes(a));
    a.workspace = scratch.workspace();
    attention.Forward(StreamOf(side), a);
    StreamOf(side).Synchronize();
  }
  void Grad(Side side) const {
    AttentionGradArgs a{.shape = MakeShape(side),
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
    const AttentionOps& attention = BackendOf(side).attention();
    SideScratch scratch(side, attention.WorkspaceBytes(a));
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
TEST_P(CudaAttentionTest, OwnKernelsOnFewHeads) {
  for (const int64_t d : {20, 100, 132}) {
    ExpectTheCpus({.s = 130, .b = 1, .a = 1, .g = 1, .d = d, .dropout = 0.1}, GetParam());
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
