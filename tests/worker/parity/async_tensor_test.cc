// The table's layouts with tensor ranks on asynchronous devices (kernels/async): the curve of the
// CPU to the last bit, in an order drawn for each, and no races. MT_LONG_TESTS draws 40.
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_world.h"
#include "tests/worker/parity/curves.h"
#include "tests/worker/parity/layouts.h"

namespace mt::parity {
namespace {

using kernels::DeviceKind;
using kernels::async::AsyncWorld;

constexpr int kAsyncSteps = 2;

std::vector<Layout> LayoutsOfTensorRanks() {
  std::vector<Layout> layouts;
  for (const Layout& layout : Layouts())
    if (layout.tp > 1 && layout.ranks == Ranks::kThreads) layouts.push_back(layout);
  return layouts;
}

class AsyncTensorTest : public testing::TestWithParam<Layout> {
 protected:
  std::vector<train::RankOutcome> RunOn(AsyncWorld* world, DeviceKind kind) {
    std::vector<std::string> overrides = OverridesOf(GetParam());
    overrides.insert(overrides.end(), {"training.precision=fp32", "training.train_iters=2",
                                       "training.global_batch_size=8",
                                       "training.eval.every_iters=2", "training.eval.iters=1"});
    if (!runner_.has_value()) runner_.emplace();
    return train::RunJob(Runner::JobOf(GetParam().family, overrides),
                         {.root = runner_->root(), .world = world, .async_kind = kind});
  }

 private:
  std::optional<Runner> runner_;
};

TEST_P(AsyncTensorTest, EveryOrderGivesTheCurveOfTheCpu) {
  const auto want = RunOn(nullptr, DeviceKind::kCpu);
  ASSERT_EQ(want[0].seen.steps.size(), static_cast<size_t>(kAsyncSteps));
  const uint64_t seeds = std::getenv("MT_LONG_TESTS") == nullptr ? 1 : 40;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    AsyncWorld world({.seed = seed + 1});
    const auto got = RunOn(&world, seed % 2 == 0 ? DeviceKind::kCuda : DeviceKind::kCpu);
    train::ExpectEqualCurve(got[0].seen.steps, want[0].seen.steps);
    EXPECT_EQ(got[0].seen.evals.back().loss, want[0].seen.evals.back().loss);
    EXPECT_THAT(world.Races(), testing::IsEmpty()) << seed;
    EXPECT_THAT(world.EarlyFrees(), testing::IsEmpty()) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, AsyncTensorTest, testing::ValuesIn(LayoutsOfTensorRanks()),
                         [](const auto& instance) { return NameOf(instance.param); });

}  // namespace
}  // namespace mt::parity
