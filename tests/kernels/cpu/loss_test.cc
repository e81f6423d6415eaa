// Cross-entropy over shards of a padded vocabulary against its definition; legend as in
// kernels/ops/loss.h.
#include "kernels/ops/loss.h"

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

constexpr int64_t kLossRows = 6, kReal = 19;

struct Result {
  Array<double> dlogits;  // [rows, real columns]
  double loss = 0, tokens = 0;
};

// Loss and gradient over `shards` equal column shards; padded columns are filled with `padding`.
template <class T>
Result Compute(const Array<double>& logits, int64_t shards, int threads, double padding,
               bool write_gradient = true) {
  const int64_t v = (kReal + 2 + shards - 1) / shards;  // two padded columns at least
  Array<int32_t> labels = Ints({kLossRows}, [](int64_t row) { return row * 3 % kReal; });
  Array<float> weight({kLossRows}, 1.0F);
  weight[1] = 0;
  weight[4] = 0.5F;
  const double loss_scale = 4;
  Array<T> stats({shards, kLossRows, 3});
  std::vector<Array<T>> shard;
  for (int64_t t = 0; t < shards; ++t) {
    shard.emplace_back(Shape{kLossRows, v}, static_cast<T>(padding));
    for (int64_t row = 0; row < kLossRows; ++row) {
      for (int64_t c = 0; c < v && t * v + c < kReal; ++c) {
        shard.back()[row * v + c] = static_cast<T>(logits[row * kReal + t * v + c]);
      }
    }
    Array<T> mine({kLossRows, 3}, static_cast<T>(kNan));
    Cpu(threads).loss().Stats(AnyStream(), {.logits = shard.back().tensor(),
                                            .labels = labels.tensor(),
                                            .first_column = t * v,
                                            .real_columns = kReal,
                                            .stats = mine.tensor()});
    std::copy(mine.data(), mine.data() + mine.size(), stats.data() + t * kLossRows * 3);
  }
  Result result{Array<double>({kLossRows, kReal})};
  std::vector<double> losses;
  for (int64_t t = 0; t < shards; ++t) {
    Array<double> sums({2}, 10.0);  // added to
    const Array<T> before = shard[static_cast<size_t>(t)];
    Array<T>& x = shard[static_cast<size_t>(t)];
    Cpu(threads).loss().Finish(AnyStream(), {.logits = x.tensor(),
                                             .labels = labels.tensor(),
                                             .first_column = t * v,
                                             .real_columns = kReal,
                                             .stats = stats.tensor(),
                                             .weight = weight.tensor(),
                                             .seed = 0.125,
                                             .loss_scale = &loss_scale,
                                             .write_gradient = write_gradient,
                                             .sums = sums.tensor()});
    // Every shard knows the whole loss.
    losses.push_back(sums[0] - 10.0);
    result.loss = sums[0] - 10.0;
    result.tokens = sums[1] - 10.0;
    if (!write_gradient) {
      EXPECT_TRUE(x == before);
    }
    for (int64_t i = 0; write_gradient && i < x.size(); ++i) {
      const int64_t column = t * v + i % v;
      if (column < kReal) {
        result.dlogits[i / v * kReal + column] = double{x[i]};
      } else {
        EXPECT_EQ(x[i], T{0}) << "padded column";
      }
    }
  }
  for (const double loss : losses) {
    EXPECT_TRUE(loss == result.loss || std::isnan(loss)) << loss << " and " << result.loss;
  }
  return result;
}

double Definition(const Array<double>& logits) {
  double total = 0;
  for (int64_t row = 0; row < kLossRows; ++row) {
    const double weight = row == 1 ? 0 : (row == 4 ? 0.5 : 1);
    double sum = 0;
    for (int64_t c = 0; c < kReal; ++c) sum += std::exp(logits[row * kReal + c]);
    total += weight * (std::log(sum) - logits[row * kReal + row * 3 % kReal]);
  }
  return total;
}

class LossTest : public testing::TestWithParam<std::tuple<int64_t, int>> {};

TEST_P(LossTest, ValueAndGradient) {
  const auto [shards, threads] = GetParam();
  Array<double> logits = Uniform(31).Make<double>({kLossRows, kReal}, 3);
  const Result result = Compute<double>(logits, shards, threads, 1e30);
  EXPECT_NEAR(result.loss, Definition(logits), 1e-13);
  EXPECT_EQ(result.tokens, 4.5);
  // seed 1/8, loss scale 4
  ExpectGradient(
      logits, [&] { return 0.5 * Definition(logits); }, result.dlogits, "logits");
  const Result single = Compute<float>(logits, shards, threads, 1e30);
  EXPECT_NEAR(single.loss, result.loss, 1e-5);
  ExpectNear(single.dlogits, result.dlogits, 1e-6, "fp32 dlogits");
  const Result evaluation = Compute<double>(logits, shards, threads, 1e30, false);
  EXPECT_EQ(evaluation.loss, result.loss);
}

INSTANTIATE_TEST_SUITE_P(ShardsAndThreads, LossTest,
                         testing::Combine(testing::Values<int64_t>(1, 2, 3, 21),
                                          testing::Values(1, 2)));

TEST(LossTest, PaddedColumnsTakeNoPartWhateverTheyHold) {
  const Array<double> logits = Uniform(32).Make<double>({kLossRows, kReal}, 3);
  const Result zero = Compute<double>(logits, 2, 1, 0.0),
               huge = Compute<double>(logits, 2, 1, INFINITY);
  EXPECT_EQ(zero.loss, huge.loss);
  EXPECT_TRUE(zero.dlogits == huge.dlogits);
}

TEST(LossTest, EqualLogitsGiveLogOfTheUnpaddedVocabulary) {
  const Result result = Compute<double>(Array<double>({kLossRows, kReal}, 0.75), 2, 1, 0.75);
  EXPECT_NEAR(result.loss / result.tokens, std::log(19.0), 1e-14);
}

TEST(LossTest, FusedEntryEqualsItsParts) {
  const Array<double> logits = Uniform(33).Make<double>({kLossRows, kReal}, 3);
  const Result parts = Compute<double>(logits, 1, 1, 0);
  Array<int32_t> labels = Ints({kLossRows}, [](int64_t row) { return row * 3 % kReal; });
  Array<float> weight({kLossRows}, 1.0F);
  weight[1] = 0;
  weight[4] = 0.5F;
  Array<double> x = logits, stats({1, kLossRows, 3}), sums({2});
  Cpu(1).loss().StatsFinish(AnyStream(), {.logits = x.tensor(),
                                          .labels = labels.tensor(),
                                          .real_columns = kReal,
                                          .stats = stats.tensor(),
                                          .weight = weight.tensor(),
                                          .seed = 0.5,
                                          .sums = sums.tensor()});
  EXPECT_NEAR(sums[0], parts.loss, 1e-14 * sums[0]);  // parts started from 10
  EXPECT_TRUE(x == parts.dlogits);
}

TEST(LossTest, NonFiniteLogitsMakeTheLossNonFinite) {
  Array<double> logits({kLossRows, kReal}, 0.5);
  logits[2 * kReal + 3] = kNan;
  EXPECT_TRUE(std::isnan(Compute<float>(logits, 2, 1, 0).loss));
  logits[2 * kReal + 3] = INFINITY;
  EXPECT_FALSE(std::isfinite(Compute<float>(logits, 1, 1, 0).loss));
}

}  // namespace
}  // namespace mt::kernels::cpu
