// Sampling against numpy (tests/golden/sampling_numpy.py), its distributions by chi-square with a
// fixed seed, its stream of uniform numbers.
#include "worker/decode/sampler.h"

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace mt::decode {
namespace {

TEST(SamplerTest, DrawsWhatNumpyDraws) {
  std::ifstream file(MT_GOLDEN_SAMPLING);
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 150U);
  for (const auto& one : cases) {
    const SamplingConfig config{.temperature = one["temperature"],
                                .top_k = one["top_k"],
                                .top_p = one["top_p"],
                                .repetition_penalty = one["repetition_penalty"]};
    ASSERT_TRUE(CheckSampling(config).ok()) << one.dump();
    auto logits = one["logits"].get<std::vector<double>>();
    PenalizeRepetition(config.repetition_penalty, one["seen"].get<std::vector<int32_t>>(), &logits);
    const auto candidates = Candidates(config, logits);
    std::vector<int32_t> drawn;
    for (const double uniform : one["uniforms"]) drawn.push_back(Draw(candidates, uniform));
    EXPECT_EQ(drawn, one["drawn"].get<std::vector<int32_t>>()) << one.dump();
  }
}

// The statistic of `draws` draws with the stream's numbers, and the degrees of freedom.
double ChiSquare(const SamplingConfig& config, const std::vector<double>& logits,
                 const std::map<int32_t, double>& expected) {
  constexpr int64_t kDraws = 40'000;
  const auto candidates = Candidates(config, logits);
  std::map<int32_t, int64_t> counts;
  for (int64_t i = 0; i < kDraws; ++i) ++counts[Draw(candidates, UniformOf(config.seed, 3, i))];
  double statistic = 0;
  for (const auto& [token, count] : counts) EXPECT_TRUE(expected.contains(token)) << token;
  for (const auto& [token, probability] : expected) {
    const double want = probability * static_cast<double>(kDraws);
    statistic += std::pow(static_cast<double>(counts[token]) - want, 2) / want;
  }
  return statistic;
}

// p(token) proportional to e^(logit / temperature) over `tokens`.
std::map<int32_t, double> Softmax(const std::vector<double>& logits, double temperature,
                                  const std::set<int32_t>& tokens) {
  std::map<int32_t, double> out;
  double sum = 0;
  for (const int32_t t : tokens)
    sum += out[t] = std::exp(logits[static_cast<size_t>(t)] / temperature);
  for (auto& [token, p] : out) p /= sum;
  return out;
}

TEST(SamplerTest, TokensComeAsOftenAsTheyShould) {
  const std::vector<double> logits = {0.5, -1, 2, 1.5, 0, -0.25, 1, -2};
  // 0.999 of chi-square with 7, 3 and 2 degrees of freedom.
  EXPECT_LT(ChiSquare({.temperature = 1.7, .seed = 5}, logits,
                      Softmax(logits, 1.7, {0, 1, 2, 3, 4, 5, 6, 7})),
            24.32);
  EXPECT_LT(ChiSquare({.temperature = 0.8, .top_k = 4, .seed = 6}, logits,
                      Softmax(logits, 0.8, {2, 3, 6, 0})),
            16.27);
  // Of all: 0.39, 0.24, 0.14, ...: three are needed to reach 0.7.
  EXPECT_LT(
      ChiSquare({.temperature = 1, .top_p = 0.7, .seed = 7}, logits, Softmax(logits, 1, {2, 3, 6})),
      13.82);
  // The test tells another distribution apart.
  EXPECT_GT(ChiSquare({.temperature = 1.6, .seed = 5}, logits,
                      Softmax(logits, 1.7, {0, 1, 2, 3, 4, 5, 6, 7})),
            24.32);
}

TEST(SamplerTest, EachSeedSampleAndDrawHasItsNumber) {
  std::set<double> seen;
  for (const int64_t seed : {0, 1})
    for (const int64_t sample : {0, 1, 2})
      for (const int64_t draw : {0, 1, 2}) seen.insert(UniformOf(seed, sample, draw));
  EXPECT_EQ(seen.size(), 18U);
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), 1);
  // By numpy of worker/decode/README.md's definition: a text generated with a seed stays.
  EXPECT_EQ(UniformOf(1234, 2, 77), 0.22860526516228652);
}

TEST(SamplerTest, NothingFiniteIsBetterThanWhatIsNot) {
  const double nan = std::nan(""), inf = INFINITY;
  EXPECT_EQ(Candidates({}, std::vector<double>{nan, -3, inf})[0].token, 1);
  EXPECT_EQ(Candidates({}, std::vector<double>{nan, nan})[0].token, 0);
  const auto drawn = Candidates({.temperature = 1}, std::vector<double>{-inf, 0, nan});
  EXPECT_EQ(drawn[0].token, 1);
  EXPECT_EQ(drawn[0].probability, 1);
}

TEST(SamplerTest, RefusesWhatHasNoMeaning) {
  for (const SamplingConfig& config : {SamplingConfig{.temperature = -1},
                                       {.temperature = NAN},
                                       {.temperature = 1, .top_k = -1},
                                       {.temperature = 1, .top_p = 0},
                                       {.temperature = 1, .top_p = 1.1},
                                       {.top_k = 5},
                                       {.top_p = 0.5},
                                       {.repetition_penalty = 0},
                                       {.repetition_penalty = INFINITY}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckSampling(config)));
  }
  EXPECT_TRUE(CheckSampling({}).ok());
}

TEST(SamplerTest, LogProbabilityIsThatOfTheSoftmax) {
  const std::vector<double> logits = {1000, 1001, 999};
  double sum = 0;
  for (const int32_t t : {0, 1, 2}) sum += std::exp(LogProbability(logits, t));
  EXPECT_NEAR(sum, 1, 1e-15);
  EXPECT_NEAR(LogProbability(logits, 1) - LogProbability(logits, 0), 1, 1e-12);
}

}  // namespace
}  // namespace mt::decode
