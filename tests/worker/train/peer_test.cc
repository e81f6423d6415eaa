// Whole training runs whose stages and replicas write each other's memory
// (worker/parallel/pipeline/peer_link.h, worker/comm/copies), on asynchronous devices that share
// theirs: the curve of the CPU to the last bit in every order that is drawn, and no races. Links
// and groups alone: tests/worker/parallel/pipeline/peer_link_test.cc,
// tests/worker/async/copies_test.cc.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_peer_memory.h"
#include "kernels/async/async_world.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"
#include "worker/parallel/comm_spans.h"

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
                                 DeviceKind kind = DeviceKind::kCpu, bool checked = false,
                                 std::function<void(int, TrainArgs*)> adjust = {}) {
    Overrides overrides = kShortJob;
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    return RunJob(TinyJob(overrides), {.root = dir_.path(),
                                       .world = world,
                                       .async_kind = kind,
                                       .sharing = [](int) { return Sharing::kAll; },
                                       .checked_calls = checked,
                                       .adjust = std::move(adjust)});
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
  for (uint64_t seed = kSanitized ? 1 : 0; seed < 3; ++seed) {
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

using parallel::CommRecord;
using parallel::CommSpans;
using parallel::CommUse;
using parallel::SpanKind;

// Times the communication of steps 2 and 3 of a rank, and has its record when the run is over.
struct Timing final : public TrainObserver {
  Observed seen;
  std::unique_ptr<CommSpans> spans;
  CommRecord record;

  void Begin(TrainArgs* args) {
    spans = std::make_unique<CommSpans>(
        args->backend->device().CreateSpanClock(10'000, base::Clock::Real()),
        CommSpans::Steps{.first = 2, .last = 3});
    args->spans = spans.get();
    args->observer = this;
  }
  void OnStep(const StepRecord& step) override { seen.OnStep(step); }
  void OnState(TrainState state, int64_t) override {
    if (state == TrainState::kExiting) record = spans->Read();
  }
  int64_t Count(CommUse use, SpanKind kind) const {
    return std::ranges::count_if(record.spans, [&](const parallel::CommSpan& span) {
      return span.use == use && span.kind == kind;
    });
  }
  int64_t Calls(CommUse use) const { return record.calls.at(static_cast<size_t>(use)); }
};

TEST_F(PeerTrainTest, CommunicationIsTimedWhereItRuns) {
  const Overrides layout = {
      "parallel.tensor=2",     "parallel.pipeline=2",          "parallel.data=2",
      "parallel.zero_stage=1", "training.eval.every_iters=0",  "model.tie_embeddings=true",
      "model.layers=4",        "training.global_batch_size=16"};
  const auto inline_run = RunOn(nullptr, layout);
  AsyncWorld world({.seed = 5});
  Timing timing;
  const auto run = RunOn(&world, layout, DeviceKind::kCpu, false, [&](int rank, TrainArgs* args) {
    if (rank == 0) timing.Begin(args);
  });
  timing.spans.reset();
  ExpectClean(run, 3);
  ExpectEqualCurve(timing.seen.steps, inline_run[0].seen.steps);
  EXPECT_THAT(world.Races(), IsEmpty());
  EXPECT_EQ(timing.record.steps, 2);
  // Inside layers some run beside the products, each timed with its wait and with the others; the
  // rest is inline.
  const int64_t beside = timing.Count(CommUse::kLayer, SpanKind::kBeside);
  const int64_t here = timing.Count(CommUse::kLayer, SpanKind::kInline);
  EXPECT_GT(beside, 0);
  EXPECT_GT(here, 0);
  EXPECT_EQ(timing.Count(CommUse::kLayer, SpanKind::kWait), beside);
  EXPECT_EQ((timing.Calls(CommUse::kLayer) + 16) / 17, beside + here);
  // Four microbatches a step, sent by the first of two stages.
  EXPECT_EQ(timing.Calls(CommUse::kActivation), 8);
  EXPECT_EQ(timing.Count(CommUse::kActivation, SpanKind::kBeside), 2) << "one of five";
  EXPECT_GT(timing.Count(CommUse::kActivation, SpanKind::kWaitSent), 0);
  EXPECT_EQ(timing.Count(CommUse::kActivation, SpanKind::kWait), 0) << "nothing arrives";
  EXPECT_GT(timing.Count(CommUse::kGradient, SpanKind::kWait), 0);
  EXPECT_EQ(timing.Calls(CommUse::kGradient), 0) << "the first stage sends none";
  // Every bucket's sum and gather, beside, and their waits.
  const int64_t buckets = timing.Calls(CommUse::kReduce) / 2;
  EXPECT_GT(buckets, 2);
  for (const CommUse use : {CommUse::kReduce, CommUse::kGather}) {
    EXPECT_EQ(timing.Calls(use), 2 * buckets);
    EXPECT_EQ(timing.Count(use, SpanKind::kBeside), 2 * buckets);
    EXPECT_EQ(timing.Count(use, SpanKind::kInline), 0);
  }
  EXPECT_EQ(timing.Count(CommUse::kReduce, SpanKind::kWait), 2 * buckets);
  EXPECT_EQ(timing.Count(CommUse::kGather, SpanKind::kWait), 3 * buckets)
      << "and those for the gathers of the step before";
  ASSERT_EQ(timing.record.ends.size(), 2U);
  EXPECT_EQ(timing.record.ends[0].step, 2);
  EXPECT_EQ(timing.record.ends[1].step, 3);
  EXPECT_LT(timing.record.ends[0].at, timing.record.ends[1].at);
  EXPECT_EQ(timing.record.dropped, 0);
  for (const CommUse use : {CommUse::kTable, CommUse::kWorld}) {
    EXPECT_EQ(timing.Calls(use), 2);
    EXPECT_EQ(timing.Count(use, SpanKind::kInline), 2);
    EXPECT_EQ(timing.Count(use, SpanKind::kBeside) + timing.Count(use, SpanKind::kWait), 0);
  }
  for (const parallel::CommSpan& span : timing.record.spans) EXPECT_GE(span.end, span.begin);
}

}  // namespace
}  // namespace mt::train
