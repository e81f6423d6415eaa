// Linear layers against triple loops in fp64, and their gradients against central differences.
// Legend as in kernels/ops/linear.h.
#include "kernels/ops/linear.h"

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

struct Sizes {
  int64_t tokens, n, k;
};

// c[i, j] = sum over l of a(i, l) b(l, j).
Array<double> MatMul(Shape shape, int64_t inner, const std::function<double(int64_t, int64_t)>& a,
                     const std::function<double(int64_t, int64_t)>& b) {
  Array<double> c(shape);
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      for (int64_t l = 0; l < inner; ++l) c[i * shape[1] + j] += a(i, l) * b(l, j);
    }
  }
  return c;
}

class LinearTest : public testing::TestWithParam<std::tuple<Sizes, int>> {
 protected:
  template <class T>
  void Run(double tolerance) {
    const auto [sizes, threads] = GetParam();
    const auto [tokens, n, k] = sizes;
    LinearOps& linear = Cpu(threads).linear();
    Uniform random(7);
    Array<T> x = random.Make<T>({tokens, k}), w = random.Make<T>({n, k}),
             bias = random.Make<T>({n});
    Array<T> dy = random.Make<T>({tokens, n});

    Array<T> y({tokens, n}, static_cast<T>(kNan));
    linear.Forward(AnyStream(), {.x = x.tensor(), .w = w.tensor(), .y = y.tensor()});
    Array<double> expected = MatMul(
        {tokens, n}, k, [&, k = k](int64_t i, int64_t l) { return double{x[i * k + l]}; },
        [&, k = k](int64_t l, int64_t j) { return double{w[j * k + l]}; });
    ExpectNear(y, expected, tolerance, "y");
    linear.Forward(AnyStream(),
                   {.x = x.tensor(), .w = w.tensor(), .bias = bias.tensor(), .y = y.tensor()});
    for (int64_t i = 0; i < expected.size(); ++i) expected[i] += double{bias[i % n]};
    ExpectNear(y, expected, tolerance, "y with bias");

    Array<T> dx({tokens, k}, static_cast<T>(kNan));
    linear.InputGrad(AnyStream(), {.dy = dy.tensor(), .w = w.tensor(), .dx = dx.tensor()});
    ExpectNear(
        dx,
        MatMul(
            {tokens, k}, n, [&, n = n](int64_t i, int64_t l) { return double{dy[i * n + l]}; },
            [&, k = k](int64_t l, int64_t j) { return double{w[l * k + j]}; }),
        tolerance, "dx");

    Array<T> dw({n, k}, static_cast<T>(kNan)), dbias({n}, static_cast<T>(kNan));
    LinearWeightGradArgs grad{
        .dy = dy.tensor(), .x = x.tensor(), .dw = dw.tensor(), .dbias = dbias.tensor()};
    linear.WeightGrad(AnyStream(), grad);
    Array<double> expected_dw = MatMul(
        {n, k}, tokens, [&, n = n](int64_t i, int64_t l) { return double{dy[l * n + i]}; },
        [&, k = k](int64_t l, int64_t j) { return double{x[l * k + j]}; });
    Array<double> expected_dbias({n});
    for (int64_t i = 0; i < dy.size(); ++i) expected_dbias[i % n] += double{dy[i]};
    ExpectNear(dw, expected_dw, tolerance, "dw");
    ExpectNear(dbias, expected_dbias, tolerance, "dbias");
    grad.mode = GradMode::kAdd;
    linear.WeightGrad(AnyStream(), grad);
    for (int64_t i = 0; i < n * k; ++i) expected_dw[i] *= 2;
    for (int64_t i = 0; i < n; ++i) expected_dbias[i] *= 2;
    ExpectNear(dw, expected_dw, tolerance, "dw added");
    ExpectNear(dbias, expected_dbias, tolerance, "dbias added");
  }
};

TEST_P(LinearTest, AgreesWithPlainLoopsInFp64) { Run<double>(1e-13); }
TEST_P(LinearTest, AgreesWithPlainLoopsInFp32) { Run<float>(3e-6); }

INSTANTIATE_TEST_SUITE_P(Shapes, LinearTest,
                         testing::Combine(testing::Values(Sizes{1, 1, 1}, Sizes{7, 5, 3},
                                                          Sizes{33, 1, 17}, Sizes{130, 97, 65},
                                                          Sizes{64, 192, 128}),
                                          testing::Values(1, 2, 3)));

// y2 = act(x w1^T + b1) w2^T, the whole feed-forward block.
class FeedForwardTest : public testing::TestWithParam<ActKind> {};

TEST_P(FeedForwardTest, GradientsOfForwardActAndInputGradAct) {
  constexpr int64_t kTokens = 5, kH = 3, kN = 7;
  const ActKind act = GetParam();
  const int64_t wide = PreColumns(act, kN);
  LinearOps& linear = Cpu(2).linear();
  Uniform random(8);
  Array<double> x = random.Make<double>({kTokens, kH}), w1 = random.Make<double>({wide, kH}),
                b1 = random.Make<double>({wide}), w2 = random.Make<double>({kH, kN});
  Array<double> weight = random.Make<double>({kTokens, kH});
  Array<double> pre({kTokens, wide}), y({kTokens, kN}), y2({kTokens, kH});
  const auto loss = [&] {
    linear.ForwardAct(AnyStream(), {.x = x.tensor(),
                                    .w = w1.tensor(),
                                    .bias = b1.tensor(),
                                    .act = act,
                                    .pre = pre.tensor(),
                                    .y = y.tensor()});
    linear.Forward(AnyStream(), {.x = y.tensor(), .w = w2.tensor(), .y = y2.tensor()});
    return WeightedSum(weight, y2);
  };
  loss();
  Array<double> dpre({kTokens, wide}), dx({kTokens, kH}), dw1({wide, kH}), db1({wide}),
      dw2({kH, kN});
  linear.WeightGrad(AnyStream(), {.dy = weight.tensor(), .x = y.tensor(), .dw = dw2.tensor()});
  LinearInputGradActArgs input_grad{.dy = weight.tensor(),
                                    .w = w2.tensor(),
                                    .pre = pre.tensor(),
                                    .act = act,
                                    .dpre = dpre.tensor(),
                                    .dbias = db1.tensor()};
  Scratch256 scratch(linear.Plan(input_grad));
  input_grad.workspace = scratch.workspace();
  linear.InputGradAct(AnyStream(), input_grad);
  linear.WeightGrad(AnyStream(), {.dy = dpre.tensor(), .x = x.tensor(), .dw = dw1.tensor()});
  linear.InputGrad(AnyStream(), {.dy = dpre.tensor(), .w = w1.tensor(), .dx = dx.tensor()});
  ExpectGradient(x, loss, dx, "x");
  ExpectGradient(w1, loss, dw1, "w1");
  ExpectGradient(b1, loss, db1, "b1");
  ExpectGradient(w2, loss, dw2, "w2");
  const std::vector<double> once(db1.data(), db1.data() + wide);
  input_grad.mode = GradMode::kAdd;
  linear.InputGradAct(AnyStream(), input_grad);
  for (int64_t i = 0; i < wide; ++i) {
    EXPECT_EQ(db1.data()[i], 2 * once[static_cast<size_t>(i)]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FeedForwardTest,
                         testing::Values(ActKind::kGelu, ActKind::kSwiglu, ActKind::kGeglu,
                                         ActKind::kRelu2, ActKind::kGeluErf));

TEST(LinearRowsTest, ARangeOfRowsIsTheProductOfThoseRows) {
  // Chunks of the head, or shards of a gathered input: exact in any order of sums (small integers).
  constexpr int64_t kTokens = 11, kN = 5, kK = 6;
  Array<float> x({kTokens, kK}), w({kN, kK}), y({kTokens, kN}), chunked({kTokens, kN});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7 - 3);
  for (int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5 - 2);
  LinearOps& linear = Cpu(1).linear();
  linear.Forward(AnyStream(), {.x = x.tensor(), .w = w.tensor(), .y = y.tensor()});
  Array<float> dw({kN, kK}), dw_chunked({kN, kK}, NAN);
  linear.WeightGrad(AnyStream(), {.dy = y.tensor(), .x = x.tensor(), .dw = dw.tensor()});
  for (int64_t begin = 0; begin < kTokens; begin += 4) {
    const int64_t count = std::min<int64_t>(4, kTokens - begin);
    const Tensor rows = x.tensor().Rows(begin, count);
    linear.Forward(AnyStream(),
                   {.x = rows, .w = w.tensor(), .y = chunked.tensor().Rows(begin, count)});
    linear.WeightGrad(AnyStream(), {.dy = chunked.tensor().Rows(begin, count),
                                    .x = rows,
                                    .mode = begin == 0 ? GradMode::kOverwrite : GradMode::kAdd,
                                    .dw = dw_chunked.tensor()});
  }
  EXPECT_TRUE(chunked == y);
  EXPECT_TRUE(dw_chunked == dw);
}

}  // namespace
}  // namespace mt::kernels::cpu
