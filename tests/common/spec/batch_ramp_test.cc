// The batch size of each step: Megatron-LM's golden ramp, thresholds in tokens, and lengths of runs
// compared with counting step by step.
#include "common/spec/batch_ramp.h"

#include <limits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mt::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BatchRamp Ramp(std::string_view text, int64_t global_batch, int64_t seq_length = 1024) {
  return BatchRamp::Parse({text, global_batch, seq_length}).value();
}

// The numbers of consumed samples at which the size changes, found by running the steps one by one.
std::vector<std::pair<int64_t, int64_t>> Changes(const BatchRamp& ramp, int64_t samples) {
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (int64_t n = 0; n < samples; n += ramp.BatchOf(n)) {
    if (changes.empty() || changes.back().second != ramp.BatchOf(n)) {
      changes.emplace_back(n, ramp.BatchOf(n));
    }
  }
  return changes;
}

TEST(BatchRampTest, MegatronsGoldenRamp) {
  // num_microbatches_calculator.py with start 8, increment 8, 300 samples, global batch 32: size 8
  // up to 96 consumed samples, 16 from 104, 24 from 200, 32 from 320.
  const BatchRamp ramp = Ramp("8,8,300", 32);
  EXPECT_THAT(Changes(ramp, 1000), ElementsAre(std::pair(0, 8), std::pair(104, 16),
                                               std::pair(200, 24), std::pair(320, 32)));
  EXPECT_EQ(ramp.BatchOf(96), 8);
  EXPECT_EQ(ramp.BatchOf(99), 8);
  EXPECT_EQ(ramp.BatchOf(100), 16);
  EXPECT_EQ(ramp.BatchOf(300), 32);
  EXPECT_EQ(ramp.last_batch(), 32);
  EXPECT_EQ(Ramp(" 8, 8 300", 32).phases(), ramp.phases());
}

TEST(BatchRampTest, TheFormulaInFloatingPointDecidesTheBorders) {
  // 7 increments over 100 samples: changes at k * 100 / 7, which no double represents.
  const BatchRamp ramp = Ramp("1,1,100", 8);
  for (int64_t n = 0; n <= 120; ++n) {
    const double per = 100.0 / 7.0;
    const int64_t expected = n > 100 ? 8 : 1 + static_cast<int64_t>(static_cast<double>(n) / per);
    ASSERT_EQ(ramp.BatchOf(n), expected) << n;
  }
}

TEST(BatchRampTest, MoreIncrementsThanSamples) {
  const BatchRamp ramp = Ramp("1,1,3", 13);  // four increments per sample
  EXPECT_THAT(ramp.phases(),
              ElementsAre(BatchPhase{0, 1}, BatchPhase{1, 5}, BatchPhase{2, 9}, BatchPhase{3, 13}));
}

TEST(BatchRampTest, ThresholdsInTokensAreWholeSamples) {
  const BatchRamp ramp = Ramp("0:256 100M:512 1B:768", 0);
  EXPECT_THAT(ramp.phases(),
              ElementsAre(BatchPhase{0, 256}, BatchPhase{97656, 512}, BatchPhase{976562, 768}));
  EXPECT_EQ(ramp.BatchOf(97655), 256);
  EXPECT_EQ(ramp.BatchOf(97656), 512);
  EXPECT_EQ(ramp.last_batch(), 768);
  EXPECT_EQ(Ramp("0:256,100M:512,1B:768", 768).phases(), ramp.phases());
  EXPECT_EQ(Ramp("0:4 10:8", 8, 1024).phases(), BatchRamp::Constant(8).phases());
}

TEST(BatchRampTest, LengthsOfRunsAgreeWithCounting) {
  for (const BatchRamp& ramp : {Ramp("8,8,300", 32), Ramp("1,3,50", 13),
                                Ramp("0:4 40:6 80:32 90:7", 0, 2), BatchRamp::Constant(5)}) {
    int64_t steps = 0;
    int64_t consumed = 0;  // after `steps` steps
    for (int64_t samples = 0; samples <= 700; ++samples) {
      if (consumed + ramp.BatchOf(consumed) <= samples) {
        consumed += ramp.BatchOf(consumed);
        ++steps;
      }
      ASSERT_EQ(ramp.StepsFor(samples), steps) << samples;
      ASSERT_EQ(ramp.SamplesAfter(steps), consumed) << steps;
    }
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Ramp("8,8,300", 32).SamplesAfter(kMost), kMost);
  EXPECT_EQ(Ramp("8,8,300", 32).StepsFor(320 + 32 * 1'000'000'000'000), 24 + 1'000'000'000'000);
}

TEST(BatchRampTest, FaultsSayWhatIsWrong) {
  const auto fault = [](std::string_view text, int64_t global_batch) {
    const StatusOr<BatchRamp> ramp = BatchRamp::Parse({text, global_batch, 1024});
    return ramp.ok() ? "accepted" : std::string(base::ToStd(ramp.status().message()));
  };
  EXPECT_THAT(fault("", 32), HasSubstr("neither"));
  EXPECT_THAT(fault("8,8", 32), HasSubstr("neither"));
  EXPECT_THAT(fault("0:8 16", 32), HasSubstr("neither"));
  EXPECT_THAT(fault("8,0,300", 32), HasSubstr("at least 1"));
  EXPECT_THAT(fault("8,x,300", 32), HasSubstr("at least 1"));
  EXPECT_THAT(fault("8,8,300", 0), HasSubstr("global_batch_size"));
  EXPECT_THAT(fault("8,9,300", 32), HasSubstr("do not lead from 8 to global_batch_size 32"));
  EXPECT_THAT(fault("32,8,300", 32), HasSubstr("do not lead"));
  EXPECT_THAT(fault("1,1,300", 5000), HasSubstr("at most 4096"));
  EXPECT_THAT(fault("0:8 1K:", 8), HasSubstr("\"1K:\" is not tokens:size"));
  EXPECT_THAT(fault("0:8 1K:0", 8), HasSubstr("is not tokens:size"));
  EXPECT_THAT(fault("1:8 1K:16", 16), HasSubstr("begin with 0 and rise"));
  EXPECT_THAT(fault("0:8 1K:16 1K:32", 32), HasSubstr("begin with 0 and rise"));
  EXPECT_THAT(fault("0:8 1K:16", 32), HasSubstr("the last size is 16"));
}

TEST(BatchRampTest, TheSizeOfAStepFollowsFromWhatIsConsumedBehindIt) {
  // Sizes that fall too: at 12 samples of the second a step of 8 could have ended as well.
  for (const auto& [text, last] :
       {std::pair("4,4,8", 8), {"0:8 8:4", 4}, {"0:8 10:4", 4}, {"0:8 1:16 20:2", 2}}) {
    const BatchRamp ramp = *BatchRamp::Parse({.text = text, .global_batch = last, .seq_length = 1});
    int64_t consumed = 0;
    for (int step = 0; step < 20; ++step) {
      const int64_t batch = ramp.BatchOf(consumed);
      consumed += batch;
      EXPECT_EQ(ramp.BatchBefore(consumed), batch) << text << " step " << step;
    }
    EXPECT_EQ(ramp.BatchBefore(3), last) << "no step ends there";
  }
  EXPECT_EQ(BatchRamp::Constant(16).BatchBefore(160), 16);
}

}  // namespace
}  // namespace mt::spec
