// Attention against the full matrix of logits in fp64, its gradients against central differences,
// its dropout mask by position. Legend as in kernels/ops/attention.h.
#include "tests/kernels/cpu/attention_problem.h"

namespace mt::kernels::cpu {
namespace {

class AttentionTest : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionTest, ForwardMatchesTheFullMatrix) {
  AttentionProblem<double> p(GetParam());
  Array<double> o = p.o, lse = p.lse;
  AttentionReference(p, &o, &lse);
  p.Forward(2);
  ExpectNear(p.o, o, 1e-13, "o");
  ExpectNear(p.lse, lse, 1e-13, "lse");
}

TEST_P(AttentionTest, Fp32FollowsFp64) {
  AttentionProblem<float> p(GetParam());
  AttentionProblem<double> q(GetParam());
  p.Forward(2);
  q.Forward(2);
  ExpectNear(p.o, q.o, 3e-6, "o");
  ExpectNear(p.lse, q.lse, 1e-6, "lse");
  p.Grad(2);
  q.Grad(2);
  ExpectNear(p.dqkv, q.dqkv, 3e-6, "dqkv");
}

// Two evaluations per element of qkv: small cases only.
class AttentionGradTest : public AttentionTest {};

TEST_P(AttentionGradTest, MatchesDifferences) {
  AttentionProblem<double> p(GetParam());
  p.Forward(1);
  p.Grad(2);
  const Array<double> gradient = p.dqkv;
  ExpectGradient(
      p.qkv,
      [&] {
        p.Forward(1);
        return WeightedSum(p.dout, p.o);
      },
      gradient, "qkv");
}

TEST_P(AttentionTest, SameBitsTwiceAndWithAnyNumberOfThreads) {
  AttentionProblem<float> p(GetParam());
  p.Forward(1);
  p.Grad(1);
  const Array<float> o = p.o, lse = p.lse, dqkv = p.dqkv;
  for (const int threads : {1, 2, 3}) {
    p.dqkv = Array<float>(p.dqkv.shape(), 5.0F);
    p.Forward(threads);
    p.Grad(threads);
    EXPECT_TRUE(p.o == o && p.lse == lse && p.dqkv == dqkv) << threads;
  }
}

const AttentionCase kSmall[] = {{},
                                {.s = 1, .b = 1, .a = 1, .g = 1, .d = 5},
                                {.a = 6, .g = 2},
                                {.a = 3, .g = 1, .d = 8},
                                {.causal = false},
                                {.a = 4, .g = 2, .dropout = 0.2},
                                {.s = 21, .dropout = 0.1, .positions = AttentionCase::kOffset},
                                {.s = 20, .dropout = 0.3, .positions = AttentionCase::kZigZag},
                                // More than one tile of 128, the last one ragged.
                                {.s = 141, .b = 1, .a = 1, .g = 1, .d = 3},
                                {.s = 141, .b = 1, .a = 2, .g = 1, .d = 2, .dropout = 0.25},
                                // Multi-query attention, head sizes that no vector divides.
                                {.s = 11, .b = 1, .a = 4, .g = 1, .d = 12},
                                {.s = 5, .b = 1, .a = 2, .g = 1, .d = 80},
                                {.s = 4, .b = 1, .a = 1, .g = 1, .d = 100, .dropout = 0.1}};
const AttentionCase kLarge[] = {{.s = 200, .b = 1, .a = 8, .g = 2, .d = 100},
                                {.s = 130, .b = 2, .a = 2, .g = 1, .d = 80},
                                {.s = 150, .b = 1, .a = 6, .g = 1, .d = 12, .dropout = 0.1},
                                {.s = 300, .b = 2, .a = 4, .g = 2, .d = 16, .dropout = 0.1},
                                {.s = 260, .b = 1, .a = 2, .g = 2, .d = 64, .causal = false},
                                {.s = 300,
                                 .b = 1,
                                 .a = 2,
                                 .g = 1,
                                 .d = 32,
                                 .dropout = 0.1,
                                 .positions = AttentionCase::kZigZag}};
INSTANTIATE_TEST_SUITE_P(Small, AttentionTest, testing::ValuesIn(kSmall));
INSTANTIATE_TEST_SUITE_P(Small, AttentionGradTest, testing::ValuesIn(kSmall));
INSTANTIATE_TEST_SUITE_P(Large, AttentionTest, testing::ValuesIn(kLarge));

TEST(AttentionLayoutTest, HeadsAndSamplesDoNotDependOnTheirCompany) {
  // Query head 1 of sample 1 alone gives the bits that it gives among four.
  AttentionProblem<float> all({.s = 40, .b = 2, .a = 2, .g = 2, .d = 8, .dropout = 0.2});
  all.Forward(2);
  AttentionProblem<float> one({.s = 40, .b = 1, .a = 1, .g = 1, .d = 8, .dropout = 0.2});
  one.samples[0] = all.samples[1];
  for (int64_t s = 0; s < 40; ++s) {
    for (int64_t part = 0; part < 3; ++part) {
      for (int64_t i = 0; i < 8; ++i) {
        one.qkv[s * 24 + part * 8 + i] = all.qkv[(s * 2 + 1) * 48 + part * 16 + 8 + i];
      }
    }
  }
  AttentionForwardArgs args{.shape = one.MakeShape(),
                            .q = one.Packed(one.qkv, 0),
                            .k = one.Packed(one.qkv, 1),
                            .v = one.Packed(one.qkv, 2),
                            .dropout = one.MakeDropout(),
                            .o = one.View(one.o, 0, 8),
                            .lse = one.lse.tensor()};
  args.dropout.first_head = kFirstHead + 1;
  Scratch256 scratch(Cpu(1).attention().Plan(args));
  args.workspace = scratch.workspace();
  Cpu(1).attention().Forward(AnyStream(), args);
  for (int64_t s = 0; s < 40; ++s) {
    for (int64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(one.o[s * 8 + i], all.o[(s * 2 + 1) * 16 + 8 + i]) << s << " " << i;
    }
  }
}

TEST(AttentionRangeTest, LargeLogitsNeitherOverflowNorVanish) {
  AttentionProblem<float> p({.s = 150, .b = 1, .a = 1, .g = 1, .d = 4});
  AttentionProblem<double> q({.s = 150, .b = 1, .a = 1, .g = 1, .d = 4});
  for (int64_t i = 0; i < p.qkv.size(); ++i) {
    p.qkv[i] *= 40;  // logits to some thousands
    q.qkv[i] = double{p.qkv[i]};
  }
  p.Forward(2);
  q.Forward(2);
  for (int64_t i = 0; i < p.o.size(); ++i) ASSERT_TRUE(std::isfinite(p.o[i]));
  ExpectNear(p.lse, q.lse, 1e-6, "lse");
  // A logit of thousands is good to 1e-4 in fp32, and a probability with it.
  ExpectNear(p.o, q.o, 2e-3, "o");
}

}  // namespace
}  // namespace mt::kernels::cpu
