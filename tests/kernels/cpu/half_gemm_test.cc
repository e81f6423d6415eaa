// 16-bit storage in GEMMs and attention: operands are widened, every stored result is
// rounded once, gradients of weights accumulate in f32.
#include "kernels/cpu/gemm.h"
#include "kernels/ops/linear.h"
#include "tests/kernels/cpu/attention_problem.h"
#include "tests/kernels/cpu/half_test.h"

namespace mt::kernels::cpu {
namespace {

template <class H>
class HalfGemmTest : public testing::Test {};
TYPED_TEST_SUITE(HalfGemmTest, HalfTypes);

// Calls op(args) with the workspace it asks for.
template <class Args, class Call>
void WithWorkspace(Args args, const Call& call) {
  Scratch256 scratch(Cpu(2).linear().Plan(args));
  args.workspace = scratch.workspace();
  call(args);
}

template <class H>
struct Layer {
  Layer(int64_t tokens, int64_t n, int64_t k)
      : x(&random, {tokens, k}),
        w(&random, {n, k}),
        bias(&random, {n}),
        dy(&random, {tokens, n}),
        y({tokens, n}),
        dx({tokens, k}) {}

  void Forward(bool half, bool with_bias) {
    const auto of = [half](Pair<H>& p) { return half ? p.half.tensor() : p.wide.tensor(); };
    WithWorkspace(
        LinearForwardArgs{
            .x = of(x), .w = of(w), .bias = with_bias ? of(bias) : Tensor{}, .y = of(y)},
        [](const auto& a) { Cpu(2).linear().Forward(AnyStream(), a); });
  }
  void InputGrad(bool half) {
    const auto of = [half](Pair<H>& p) { return half ? p.half.tensor() : p.wide.tensor(); };
    WithWorkspace(LinearInputGradArgs{.dy = of(dy), .w = of(w), .dx = of(dx)},
                  [](const auto& a) { Cpu(2).linear().InputGrad(AnyStream(), a); });
  }
  void WeightGrad(bool half, GradMode mode, Array<float>* dw, Array<float>* dbias) {
    const auto of = [half](Pair<H>& p) { return half ? p.half.tensor() : p.wide.tensor(); };
    WithWorkspace(LinearWeightGradArgs{.dy = of(dy),
                                       .x = of(x),
                                       .mode = mode,
                                       .dw = dw->tensor(),
                                       .dbias = dbias == nullptr ? Tensor{} : dbias->tensor()},
                  [](const auto& a) { Cpu(2).linear().WeightGrad(AnyStream(), a); });
  }

  Uniform random{91};
  Pair<H> x, w, bias, dy, y, dx;
};

TYPED_TEST(HalfGemmTest, EqualTheF32GemmsRoundedOnce) {
  for (const auto& [tokens, n, k] : {std::tuple{1, 1, 1}, std::tuple{7, 5, 3},
                                     std::tuple{33, 129, 65}, std::tuple{130, 192, 97}}) {
    Layer<TypeParam> layer(tokens, n, k);
    Array<float> dw({n, k}, NAN), dbias({n}, NAN), wide_dw = dw, wide_dbias = dbias;
    for (const bool bias : {false, true}) {
      layer.Forward(true, bias);
      layer.Forward(false, bias);
      ExpectRounded(layer.y, "y");
    }
    layer.InputGrad(true);
    layer.InputGrad(false);
    ExpectRounded(layer.dx, "dx");
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAdd}) {
      layer.WeightGrad(true, mode, &dw, &dbias);
      layer.WeightGrad(false, mode, &wide_dw, &wide_dbias);
      ExpectSame(dw, wide_dw, "dw");
      ExpectSame(dbias, wide_dbias, "dbias");
    }
  }
}

TYPED_TEST(HalfGemmTest, ManyOutputsGoPanelByPanel) {
  // More output features than one panel (4096) holds; the last panel is ragged. Small integers, so
  // every sum is exact in f32 and only the one rounding is left.
  constexpr int64_t kTokens = 6, kN = 2 * 4096 + 33, kK = 9;
  Layer<TypeParam> layer(kTokens, kN, kK);
  for (Pair<TypeParam>* p : {&layer.x, &layer.w, &layer.bias, &layer.dy}) {
    for (int64_t i = 0; i < p->half.size(); ++i) {
      p->half[i] = ValueOf<TypeParam>(static_cast<double>(i * 7 % 13 - 6));
    }
    p->Refresh();
  }
  Array<float> dw({kN, kK}, NAN), wide_dw = dw;
  for (const bool half : {true, false}) {
    layer.Forward(half, true);
    layer.InputGrad(half);
    layer.WeightGrad(half, GradMode::kOverwrite, half ? &dw : &wide_dw, nullptr);
  }
  ExpectRounded(layer.y, "y");
  ExpectRounded(layer.dx, "dx");
  ExpectSame(dw, wide_dw, "dw");
  // The workspace holds a panel of the weights, not all of them.
  EXPECT_LT(
      Cpu(1).linear().Plan(LinearForwardArgs{
          .x = layer.x.half.tensor(), .w = layer.w.half.tensor(), .y = layer.y.half.tensor()}),
      5000 * (kTokens + kK) * 4);
}

TYPED_TEST(HalfGemmTest, SixtyFourMicrobatchesKeepTheirSum) {
  constexpr int64_t kTokens = 24, kN = 16, kK = 12;
  Array<float> dw({kN, kK}, NAN), dbias({kN}, NAN);
  Array<double> exact({kN, kK}), exact_bias({kN});
  Layer<TypeParam> layer(kTokens, kN, kK);
  for (int microbatch = 0; microbatch < 64; ++microbatch) {
    layer.x = Pair<TypeParam>(&layer.random, {kTokens, kK});
    layer.dy = Pair<TypeParam>(&layer.random, {kTokens, kN});
    layer.WeightGrad(true, microbatch == 0 ? GradMode::kOverwrite : GradMode::kAdd, &dw, &dbias);
    // This microbatch's own f32 gradient, into a sum that loses nothing.
    Array<float> alone({kN, kK}), alone_bias({kN});
    layer.WeightGrad(false, GradMode::kOverwrite, &alone, &alone_bias);
    for (int64_t i = 0; i < kN * kK; ++i) exact[i] += double{alone[i]};
    for (int64_t i = 0; i < kN; ++i) exact_bias[i] += double{alone_bias[i]};
  }
  ExpectNear(dw, exact, 1e-6, "dw");
  ExpectNear(dbias, exact_bias, 1e-6, "dbias");
}

TYPED_TEST(HalfGemmTest, FusedActivations) {
  constexpr int64_t kTokens = 9, kN = 14, kK = 6;
  for (const ActKind act : {ActKind::kGelu, ActKind::kSwiglu}) {
    const int64_t wide_n = PreColumns(act, kN);
    Uniform random(92);
    Pair<TypeParam> x(&random, {kTokens, kK}), w1(&random, {wide_n, kK}), w2(&random, {kK, kN}),
        dy(&random, {kTokens, kK}), pre({kTokens, wide_n}), y({kTokens, kN}),
        dpre({kTokens, wide_n}), dact({kTokens, kN});
    WithWorkspace(LinearForwardActArgs{.x = x.half.tensor(),
                                       .w = w1.half.tensor(),
                                       .act = act,
                                       .pre = pre.half.tensor(),
                                       .y = y.half.tensor()},
                  [](const auto& a) { Cpu(2).linear().ForwardAct(AnyStream(), a); });
    WithWorkspace(
        LinearForwardArgs{.x = x.wide.tensor(), .w = w1.wide.tensor(), .y = pre.wide.tensor()},
        [](const auto& a) { Cpu(2).linear().Forward(AnyStream(), a); });
    ExpectRounded(pre, "pre");
    pre.Refresh();
    Cpu(1).act().Act(AnyStream(), {.kind = act, .pre = pre.wide.tensor(), .y = y.wide.tensor()});
    ExpectRounded(y, "y");
    WithWorkspace(LinearInputGradActArgs{.dy = dy.half.tensor(),
                                         .w = w2.half.tensor(),
                                         .pre = pre.half.tensor(),
                                         .act = act,
                                         .dpre = dpre.half.tensor()},
                  [](const auto& a) { Cpu(2).linear().InputGradAct(AnyStream(), a); });
    WithWorkspace(
        LinearInputGradArgs{
            .dy = dy.half.tensor(), .w = w2.half.tensor(), .dx = dact.half.tensor()},
        [](const auto& a) { Cpu(2).linear().InputGrad(AnyStream(), a); });
    dact.Refresh();
    Cpu(1).act().ActGrad(AnyStream(), {.kind = act,
                                       .dy = dact.wide.tensor(),
                                       .pre = pre.wide.tensor(),
                                       .dpre = dpre.wide.tensor()});
    ExpectRounded(dpre, "dpre");
  }
}

TYPED_TEST(HalfGemmTest, AttentionEqualsF32RoundedOnce) {
  const AttentionCase cases[] = {
      {},
      {.s = 150, .b = 2, .a = 4, .g = 2, .d = 12, .dropout = 0.1},
      {.s = 40, .b = 1, .a = 2, .g = 1, .d = 80, .window = 9, .alibi = true},
      {.s = 300, .b = 1, .a = 2, .g = 2, .d = 16, .causal = false},
      {.s = 140, .b = 1, .a = 3, .g = 1, .d = 100, .window = 20, .q0 = 150}};
  for (const AttentionCase& c : cases) {
    AttentionProblem<TypeParam> half(c);
    AttentionProblem<float> wide(c);
    wide.qkv = Widened(half.qkv);
    wide.dout = Widened(half.dout);
    half.Forward(2);
    wide.Forward(2);
    for (int64_t i = 0; i < half.o.size(); ++i) {
      ASSERT_EQ(half.o[i].bits, ValueOf<TypeParam>(double{wide.o[i]}).bits) << "o " << i;
    }
    ExpectSame(half.lse, wide.lse, "lse");
    wide.o = Widened(half.o);
    half.Grad(1);
    wide.Grad(1);
    for (int64_t i = 0; i < half.dqkv.size(); ++i) {
      ASSERT_EQ(half.dqkv[i].bits, ValueOf<TypeParam>(double{wide.dqkv[i]}).bits) << "dqkv " << i;
    }
    const Array<TypeParam> one_thread = half.dqkv;
    half.Grad(3);
    EXPECT_TRUE(half.dqkv == one_thread);
  }
}

}  // namespace
}  // namespace mt::kernels::cpu
