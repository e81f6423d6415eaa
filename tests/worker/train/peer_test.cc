// Whole training runs whose stages and replicas write each other's memory
// (worker/parallel/pipeline/peer_link.h, worker/comm/copies), on asynchronous devices that share
// theirs: the curve of the CPU to the last bit in every order that is drawn, and no races. Links
// and groups alone: tests/worker/parallel/pipeline/peer_link_test.cc,
// tests/worker/async/copies_test.cc.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_peer_memory.h"
#include "kernels/async/async_world.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

using kernels::DeviceKind;
using kernels::async::AsyncWorld;
using kernels::async::Sharing;
using testing::IsEmpty;

using Overrides = std::vector<std::string>;

struct StageLayout {
  const char* name;
  Overrides overrides;
};

// Two evaluations, of another number of microbatches than a step.
const Overrides kShortJob = {
    "training.train_iters=3",      "training.precision=fp32", "parallel.bucket_size=1024",
    "training.eval.every_iters=2", "training.eval.iters=1",   "checkpoint.directory=none",
};

std::vector<StageLayout> StageLayouts() {
  return {
      {"pp2", {"parallel.pipeline=2"}},
      {"pp2_gpipe", {"parallel.pipeline=2", "parallel.schedule=gpipe"}},
      {"pp2_interleaved", {"parallel.pipeline=2", "parallel.virtual_stages=2", "model.layers=4"}},
      {"pp4", {"parallel.pipeline=4", "model.layers=4"}},
      {"tp2_pp2", {"parallel.tensor=2", "parallel.pipeline=2"}},
      {"pp2_dp2_zero1", {"parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=1"}},
      {"dp2", {"parallel.data=2"}},
      {"dp4_zero1", {"parallel.data=4", "parallel.zero_stage=1"}},
      {"dp2_zero1_bf16", {"parallel.data=2", "parallel.zero_stage=1", "training.precision=bf16"}},
  };
}

class PeerTrainTest : public TrainTest {
 protected:
  // On devices of the world, or on CPUs.
  std::vector<RankOutcome> RunOn(AsyncWorld* world, const Overrides& layout,
                                 DeviceKind kind = DeviceKind::kCpu, bool checked = false) {
    Overrides overrides = kShortJob;
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    return RunJob(TinyJob(overrides), {.root = dir_.path(),
                                       .world = world,
                                       .async_kind = kind,
                                       .sharing = [](int) { return Sharing::kAll; },
                                       .checked_calls = checked});
  }
  static void ExpectEqualRuns(const std::vector<RankOutcome>& got,
                              const std::vector<RankOutcome>& want) {
    ExpectEqualCurve(got[0].seen.steps, want[0].seen.steps);
    ASSERT_EQ(got[0].seen.evals.size(), want[0].seen.evals.size());
    for (size_t i = 0; i < got[0].seen.evals.size(); ++i)
      EXPECT_EQ(got[0].seen.evals[i].loss, want[0].seen.evals[i].loss);
  }
};

bool UsesWords(const AsyncWorld& world) {
  const auto waits = world.NeededWaits();
  return std::any_of(waits.begin(), waits.end(), [](const auto& wait) {
    return wait.site.find(" waits for word ") != std::string::npos;
  });
}

class PeerLayoutTest : public PeerTrainTest, public testing::WithParamInterface<StageLayout> {};

TEST_P(PeerLayoutTest, EveryOrderGivesTheCurveOfTheCpu) {
  const auto inline_run = RunOn(nullptr, GetParam().overrides);
  ExpectClean(inline_run, 3);
  ASSERT_EQ(inline_run[0].seen.steps.size(), 3U);
  ASSERT_EQ(inline_run[0].seen.evals.size(), 2U) << "one of the end";
  for (uint64_t seed = 0; seed < 3; ++seed) {
    AsyncWorld world({.seed = seed});
    const auto run =
        RunOn(&world, GetParam().overrides, seed % 2 == 0 ? DeviceKind::kCpu : DeviceKind::kCuda,
              /*checked=*/seed == 2);
    ExpectClean(run, 3);
    ExpectEqualRuns(run, inline_run);
    EXPECT_THAT(world.Races(), IsEmpty()) << seed;
    EXPECT_THAT(world.EarlyFrees(), IsEmpty()) << seed;
    EXPECT_TRUE(UsesWords(world)) << "nothing of peers'";
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PeerLayoutTest, testing::ValuesIn(StageLayouts()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace mt::train
