// Sliding windows, ALiBi, offsets and key positions of attention, which attention_test.cc leaves at
// their defaults.
#include "tests/kernels/cpu/attention_problem.h"

namespace mt::kernels::cpu {
namespace {

class MaskTest : public testing::TestWithParam<AttentionCase> {};

TEST_P(MaskTest, ForwardMatchesTheFullMatrix) {
  AttentionProblem<double> p(GetParam());
  Array<double> o = p.o, lse = p.lse;
  AttentionReference(p, &o, &lse);
  p.Forward(2);
  ExpectNear(p.o, o, 1e-13, "o");
  for (int64_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(lse[i])) {
      ASSERT_EQ(p.lse[i], lse[i]) << "a query without keys";
    } else {
      ASSERT_NEAR(p.lse[i], lse[i], 1e-12);
    }
  }
}

TEST_P(MaskTest, Fp32FollowsFp64AndTheThreadsDoNotMatter) {
  AttentionProblem<float> p(GetParam()), three(GetParam());
  AttentionProblem<double> q(GetParam());
  p.Forward(1);
  p.Grad(1);
  three.Forward(3);
  three.Grad(3);
  q.Forward(2);
  q.Grad(2);
  EXPECT_TRUE(p.o == three.o && p.lse == three.lse && p.dqkv == three.dqkv);
  ExpectNear(p.o, q.o, 5e-6, "o");
  ExpectNear(p.dqkv, q.dqkv, 5e-6, "dqkv");
}

// Two evaluations per element of qkv: small cases only.
class MaskGradTest : public MaskTest {};

TEST_P(MaskGradTest, MatchesDifferences) {
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

const AttentionCase kSmallMasked[] = {
    {.window = 3},
    {.s = 7, .window = 1},
    {.window = 100},
    {.a = 4, .g = 2, .alibi = true},
    {.causal = false, .alibi = true},
    {.a = 3, .g = 1, .dropout = 0.2, .window = 4, .alibi = true},
    // A later chunk of queries against an earlier one of keys, and an earlier against a later.
    {.q0 = 9, .k0 = 0},
    {.window = 6, .q0 = 9, .k0 = 0, .alibi = true},
    {.q0 = 4, .k0 = 7, .alibi = true},
    {.s = 6, .q0 = 0, .k0 = 6},
    {.dropout = 0.3, .q0 = 12, .k0 = 3, .key_shift = 5},
    // Several tiles: the window leaves some out, or cuts one off in the middle.
    {.s = 290, .b = 1, .a = 1, .g = 1, .d = 2, .window = 30},
    {.s = 150, .b = 1, .a = 1, .g = 1, .d = 2, .window = 130, .q0 = 140, .k0 = 10}};
const AttentionCase kLargeMasked[] = {
    {.s = 500, .b = 1, .a = 4, .g = 2, .d = 12, .dropout = 0.1, .window = 100, .alibi = true},
    {.s = 400, .b = 2, .a = 2, .g = 1, .d = 16, .window = 129},
    {.s = 300, .b = 1, .a = 2, .g = 2, .d = 8, .window = 200, .q0 = 450},
    {.s = 300, .b = 1, .a = 2, .g = 1, .d = 80, .q0 = 100, .k0 = 270, .alibi = true}};
INSTANTIATE_TEST_SUITE_P(Small, MaskTest, testing::ValuesIn(kSmallMasked));
INSTANTIATE_TEST_SUITE_P(Small, MaskGradTest, testing::ValuesIn(kSmallMasked));
INSTANTIATE_TEST_SUITE_P(Large, MaskTest, testing::ValuesIn(kLargeMasked));

TEST(MaskEqualityTest, AWindowOfTheWholeSequenceChangesNoBit) {
  AttentionProblem<float> plain({.s = 300, .a = 2, .g = 1, .d = 16}),
      window({.s = 300, .a = 2, .g = 1, .d = 16, .window = 300});
  for (AttentionProblem<float>* p : {&plain, &window}) {
    p->Forward(2);
    p->Grad(2);
  }
  EXPECT_TRUE(plain.o == window.o && plain.lse == window.lse && plain.dqkv == window.dqkv);
}

TEST(MaskEqualityTest, OnlyTheDifferenceOfTheOffsetsMatters) {
  AttentionProblem<float> near({.s = 40, .window = 9, .q0 = 5, .alibi = true}),
      far({.s = 40, .window = 9, .q0 = 100005, .k0 = 100000, .alibi = true});
  near.Forward(1);
  far.Forward(1);
  EXPECT_TRUE(near.o == far.o && near.lse == far.lse);
}

std::vector<double> Slopes(int64_t heads) {
  Array<double> slopes({heads});
  FillAlibiSlopes(heads, 0, slopes.tensor());
  return {slopes.data(), slopes.data() + heads};
}

TEST(AlibiTest, SlopesOfPowersOfTwoAndOfOtherCounts) {
  // Press et al. 2022: 8 heads 1/2 ... 1/256; 12 heads those and 2^-0.5, 2^-1.5, 2^-2.5, 2^-3.5.
  std::vector<double> expected;
  for (int i = 1; i <= 8; ++i) expected.push_back(std::pow(0.5, i));
  EXPECT_EQ(Slopes(8), expected);
  for (const double power : {0.5, 1.5, 2.5, 3.5}) expected.push_back(std::pow(2, -power));
  const std::vector<double> twelve = Slopes(12);
  ASSERT_EQ(twelve.size(), expected.size());
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(twelve[i], expected[i], 1e-16) << i;
  EXPECT_EQ(Slopes(1), (std::vector<double>{1.0 / 256}));
  EXPECT_NEAR(Slopes(16)[1], 0.5, 1e-16);
}

TEST(AlibiTest, AShardHasTheSlopesOfItsHeads) {
  Array<float> shard({3});
  FillAlibiSlopes(12, 6, shard.tensor());
  const std::vector<double> all = Slopes(12);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(shard[i], static_cast<float>(all[static_cast<size_t>(6 + i)]));
  }
}

}  // namespace
}  // namespace mt::kernels::cpu
