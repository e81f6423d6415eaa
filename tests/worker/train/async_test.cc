// Whole training runs on asynchronous devices (kernels/async): the curve of the CPU to the last bit
// in every order that is drawn, no races, and for replicas no wait that could be left out unseen.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "kernels/async/async_world.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::train {
namespace {

using kernels::DeviceKind;
using kernels::async::AsyncWorld;
using kernels::async::WaitName;
using testing::IsEmpty;

using Overrides = std::vector<std::string>;

struct Layout {
  const char* name;
  Overrides overrides;
};

// More than the steps whose results the engine keeps.
constexpr size_t kSteps = 5;

// Many buckets, two microbatches a replica, evaluations.
const Overrides kBase = {"training.train_iters=5",    "training.precision=fp32",
                         "parallel.bucket_size=1024", "training.eval.every_iters=2",
                         "training.eval.iters=1",     "checkpoint.directory=none"};
const Overrides kReplicas = {"parallel.data=2", "parallel.zero_stage=1"};

std::vector<Layout> Layouts() {
  return {
      {"one", {}},
      {"dp2", {"parallel.data=2"}},
      {"dp2_zero1", kReplicas},
      {"dp2_zero1_inline",
       {"parallel.data=2", "parallel.zero_stage=1", "parallel.overlap.grad_reduce=false",
        "parallel.overlap.param_gather=false"}},
      {"dp2_zero1_bf16", {"parallel.data=2", "parallel.zero_stage=1", "training.precision=bf16"}},
      {"dp4_zero1", {"parallel.data=4", "parallel.zero_stage=1"}},
      {"tp2", {"parallel.tensor=2"}},
      {"pp2", {"parallel.pipeline=2"}},
      {"pp2_interleaved", {"parallel.pipeline=2", "parallel.virtual_stages=2", "model.layers=4"}},
      {"pp2_dp2_zero1", {"parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=1"}},
      {"tp2_positions_restart", {"parallel.tensor=2", "data.reset_positions=true"}},
  };
}

class AsyncTrainTest : public TrainTest {
 protected:
  // On devices of the world, or on CPUs.
  std::vector<RankOutcome> RunOn(AsyncWorld* world, const Overrides& layout,
                                 DeviceKind kind = DeviceKind::kCpu, bool checked = false) {
    Overrides overrides = kBase;
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    return RunJob(
        TinyJob(overrides),
        {.root = dir_.path(), .world = world, .async_kind = kind, .checked_calls = checked});
  }
  static void ExpectEqualRuns(const std::vector<RankOutcome>& got,
                              const std::vector<RankOutcome>& want) {
    ExpectEqualCurve(got[0].seen.steps, want[0].seen.steps);
    ASSERT_EQ(got[0].seen.evals.size(), want[0].seen.evals.size());
    for (size_t i = 0; i < got[0].seen.evals.size(); ++i)
      EXPECT_EQ(got[0].seen.evals[i].loss, want[0].seen.evals[i].loss);
  }
};

class AsyncLayoutTest : public AsyncTrainTest, public testing::WithParamInterface<Layout> {};

TEST_P(AsyncLayoutTest, EveryOrderGivesTheCurveOfTheCpu) {
  const auto inline_run = RunOn(nullptr, GetParam().overrides);
  ExpectClean(inline_run, kSteps);
  ASSERT_EQ(inline_run[0].seen.steps.size(), kSteps);
  ASSERT_EQ(inline_run[0].seen.evals.size(), 3U) << "one of the end";
  for (uint64_t seed = kSanitized ? 2 : 0; seed < 4; ++seed) {
    AsyncWorld world({.seed = seed});
    const auto run =
        RunOn(&world, GetParam().overrides, seed % 2 == 0 ? DeviceKind::kCpu : DeviceKind::kCuda,
              /*checked=*/seed >= 2);
    ExpectClean(run, kSteps);
    ExpectEqualRuns(run, inline_run);
    EXPECT_THAT(world.Races(), IsEmpty()) << seed;
    EXPECT_THAT(world.EarlyFrees(), IsEmpty()) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, AsyncLayoutTest, testing::ValuesIn(Layouts()),
                         [](const auto& instance) { return instance.param.name; });

// Of replicas with so wide layers that no bucket has parameters of two (the wait for one of those
// may come earlier than it must), and of tensor ranks.
TEST_F(AsyncTrainTest, NoWaitCanBeLeftOut) {
  Overrides replicas = kReplicas;
  replicas.insert(replicas.end(), {"training.train_iters=2", "model.hidden_size=32"});
  const Overrides tensor = {"parallel.tensor=2", "training.train_iters=1"};
  for (const Overrides& layout : {replicas, tensor}) {
    AsyncWorld whole({});
    RunOn(&whole, layout);
    const std::vector<WaitName> waits = whole.NeededWaits();
    ASSERT_THAT(waits, testing::Not(IsEmpty()));
    int64_t count = 0;
    for (const WaitName& wait : waits) {
      if (wait.rank != 0) continue;  // ranks do the same
      if (kSanitized && count++ % 4 != 0) continue;
      AsyncWorld world({.drop = wait});
      RunOn(&world, layout);
      // Memory that is freed too early: what the host alone waits for, at the end.
      EXPECT_FALSE(world.Races().empty() && world.EarlyFrees().empty()) << wait.Text();
    }
  }
}

TEST_F(AsyncTrainTest, SavesAndResumesAsTheCpuDoes) {
  const auto inline_run = RunOn(nullptr, kReplicas);
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const std::string directory =
        kind == DeviceKind::kCpu ? "checkpoint.directory=cpu" : "checkpoint.directory=gpu";
    Overrides first = kReplicas;
    first.insert(first.end(), {directory, "checkpoint.every_iters=2"});
    Overrides second = first;
    first.push_back("training.exit_at_iter=2");
    for (const Overrides& overrides : {first, second}) {
      AsyncWorld world({.seed = 1});
      const auto run = RunOn(&world, overrides, kind);
      EXPECT_TRUE(run[0].result.status.ok()) << run[0].result.status;
      EXPECT_THAT(world.Races(), IsEmpty());
      EXPECT_THAT(world.EarlyFrees(), IsEmpty());
      if (overrides.size() == first.size()) continue;
      const std::vector<StepRecord>& all = inline_run[0].seen.steps;
      ASSERT_EQ(run[0].seen.steps.size(), kSteps - 2) << "resumed";
      ExpectEqualCurve(run[0].seen.steps, {all.begin() + 2, all.end()});
      EXPECT_EQ(run[0].seen.evals.back().loss, inline_run[0].seen.evals.back().loss);
    }
  }
}

// Aborts the rank's groups as soon as this step is reported.
class AbortingObserver final : public TrainObserver {
 public:
  AbortingObserver(int64_t step, const TrainArgs& args)
      : step_(step), groups_(args.groups), next_(args.observer) {}
  void OnStep(const StepRecord& record) override {
    next_->OnStep(record);
    if (record.step() == step_) groups_->Abort("a fault in the middle of steps");
  }

 private:
  const int64_t step_;
  parallel::RankGroups* const groups_;
  TrainObserver* const next_;
};

// Steps are enqueued ahead: what the device computed behind a broken group is not what the job
// would have computed, whatever the result says.
TEST_F(AsyncTrainTest, NoStepIsReportedBehindABrokenGroup) {
  // Of three: the last two are read one after the other, at the end.
  static constexpr int64_t kBroken = 2;
  for (const Overrides& layout : {kReplicas, Overrides{"parallel.tensor=2"}}) {
    Overrides overrides = kBase;
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    overrides.insert(overrides.end(), {"training.train_iters=3", "training.eval.every_iters=0"});
    AsyncWorld world({});
    std::vector<std::unique_ptr<AbortingObserver>> observers;
    const auto run = RunJob(
        TinyJob(overrides),
        {.root = dir_.path(), .world = &world, .adjust = [&observers](int rank, TrainArgs* args) {
           if (rank != 0) return;
           observers.push_back(std::make_unique<AbortingObserver>(kBroken, *args));
           args->observer = observers.back().get();
         }});
    EXPECT_EQ(run[0].result.status.code(), absl::StatusCode::kAborted) << run[0].result.status;
    ASSERT_EQ(run[0].seen.steps.size(), static_cast<size_t>(kBroken));
  }
}

// A matrix that is stored in parts of its columns, from device memory: the copy that is made while
// the next step computes, and pieces of the memory itself. The files are those of the CPU.
TEST_F(AsyncTrainTest, SavesPartsOfMatricesAsTheCpuDoes) {
  const Overrides job = {"model.hidden_size=32", "model.ffn_size=16384", "training.train_iters=3",
                         "checkpoint.at_end=true", "checkpoint.every_iters=2"};
  const auto saves = [&](AsyncWorld* world, DeviceKind kind, const std::string& directory) {
    Overrides all = job;
    all.push_back("checkpoint.directory=" + directory);
    ExpectClean(RunOn(world, all, kind), 3);
  };
  saves(nullptr, DeviceKind::kCpu, "inline");
  AsyncWorld world({.seed = 3});
  saves(&world, DeviceKind::kCuda, "device");
  EXPECT_THAT(world.Races(), IsEmpty());
  for (const int64_t step : {2, 3}) {
    const auto text = [&](const std::string& directory, const std::string& file) {
      return base::ReadFile(dir_.path() + "/checkpoints/" + directory + "/" +
                            checkpoint::FolderName({step, 1}) + "/" + file)
          .value();
    };
    for (const std::string file : {"rank-00000.json", "rank-00000.safetensors"})
      EXPECT_TRUE(text("inline", file) == text("device", file)) << file << " of step " << step;
    const auto slices = nlohmann::json::parse(text("device", "rank-00000.json"))
                            .at("tensors")
                            .at("exp_avg/layers.1.ffn.down.weight")
                            .at("slices");
    ASSERT_EQ(slices.size(), 8U);
    EXPECT_EQ(slices[5].at("offset"), (std::vector<int64_t>{0, 5 * 2048}));
  }
}

}  // namespace
}  // namespace mt::train
