// The executor: the same work with overlap on and off, failures that reach every stage, times, and
// the same over shared memory and Gloo.
#include "worker/parallel/pipeline/executor.h"

#include <array>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/comm/group_harness.h"
#include "tests/worker/parallel/pipeline/fake_work.h"
#include "tests/worker/parallel/pipeline/inline_device.h"
#include "tests/worker/parallel/pipeline/stages.h"
#include "worker/comm/threads/hub.h"
#include "worker/parallel/schedule/generate.h"

namespace mt::parallel {
namespace {

using testing::HasSubstr;

Schedule Make(const ScheduleRequest& request) { return GenerateSchedule(request).value(); }

struct Layout {
  ScheduleRequest request;
  const char* name;
};

const Layout kLayouts[] = {
    {{.kind = ScheduleKind::kOneFOneB, .stages = 4, .microbatches = 7}, "OneFOneB"},
    {{.kind = ScheduleKind::kGPipe, .stages = 3, .microbatches = 5}, "GPipe"},
    {{.kind = ScheduleKind::kInterleaved, .stages = 3, .microbatches = 8, .chunks = 3, .group = 4},
     "Interleaved"},
    {{.kind = ScheduleKind::kInterleaved, .stages = 2, .microbatches = 4, .chunks = 2},
     "TwoStageRing"},
};

class Layouts : public testing::TestWithParam<std::tuple<Layout, bool, comm::Kind>> {};

// Real ranks are processes over shared memory or Gloo; three steps, with evaluation in between.
TEST_P(Layouts, PassesFollowEachOther) {
  const auto& [layout, overlap, kind] = GetParam();
  const Schedule training = Make(layout.request);
  const Schedule evaluation = ForwardOnly(training, 11);
  comm::Ranks ranks(kind, training.stages);
  const std::vector<Status> results =
      RunStages({.training = &training,
                 .passes = {&training, &training, &evaluation, &training, &evaluation},
                 .overlap = overlap,
                 .seed = 1,
                 .max_delay_us = 20,
                 .is_empty = {},
                 .inject = {},
                 .after_pass = {},
                 .factory = [&ranks = ranks](int stage) -> comm::GroupFactory& {
                   return ranks.factory(stage);
                 }});
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

// A stage whose chunk fails, at any point of the pass: the others end too, and say who went away.
TEST_P(Layouts, AFailedActionEndsEveryStage) {
  const auto& [layout, overlap, kind] = GetParam();
  const Schedule training = Make(layout.request);
  const int failing_stage = training.stages / 2;
  const auto& actions = training.actions[static_cast<size_t>(failing_stage)];
  for (size_t at = 0; at < actions.size(); at += kind == comm::Kind::kGloo ? 5 : 1) {
    SCOPED_TRACE(ActionLabel(training, actions[at]));
    comm::Ranks ranks(kind, training.stages);
    const std::vector<Status> results =
        RunStages({.training = &training,
                   .passes = {&training, &training},
                   .overlap = overlap,
                   .seed = at,
                   .max_delay_us = 20,
                   .is_empty = {},
                   .inject =
                       [&, at](int stage, const Action& action, Executor&) {
                         if (stage != failing_stage || !(action == actions[at])) return OkStatus();
                         return base::DataLoss("the chunk has failed");
                       },
                   .after_pass = {},
                   .factory = [&ranks = ranks](int stage) -> comm::GroupFactory& {
                     return ranks.factory(stage);
                   }});
    for (int stage = 0; stage < training.stages; ++stage) {
      const Status& result = results[static_cast<size_t>(stage)];
      if (stage == failing_stage) {
        EXPECT_EQ(result.code(), absl::StatusCode::kDataLoss) << result;
        EXPECT_THAT(base::Message(result),
                    HasSubstr(fmt::format("stage {}, {}: the chunk has failed", stage,
                                          ActionLabel(training, actions[at]))));
      } else {
        EXPECT_EQ(result.code(), absl::StatusCode::kUnavailable) << stage << ": " << result;
      }
    }
  }
}

// Another thread of the rank ends the pass.
TEST_P(Layouts, AbortEndsEveryStage) {
  const auto& [layout, overlap, kind] = GetParam();
  const Schedule training = Make(layout.request);
  comm::Ranks ranks(kind, training.stages);
  const std::vector<Status> results =
      RunStages({.training = &training,
                 .passes = {&training, &training},
                 .overlap = overlap,
                 .seed = 3,
                 .max_delay_us = 50,
                 .is_empty = {},
                 .inject =
                     [&](int stage, const Action& action, Executor& executor) {
                       if (stage == 0 && action.kind == ActionKind::kBackward) {
                         std::thread([&] { executor.Abort("told to leave"); }).join();
                       }
                       return OkStatus();
                     },
                 .after_pass = {},
                 .factory = [&ranks = ranks](int stage) -> comm::GroupFactory& {
                   return ranks.factory(stage);
                 }});
  EXPECT_EQ(results[0].code(), absl::StatusCode::kAborted) << results[0];
  EXPECT_THAT(base::Message(results[0]), HasSubstr("told to leave"));
  for (size_t stage = 1; stage < results.size(); ++stage) {
    EXPECT_EQ(results[stage].code(), absl::StatusCode::kUnavailable) << results[stage];
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layouts,
                         testing::Combine(testing::ValuesIn(kLayouts), testing::Bool(),
                                          testing::Values(comm::Kind::kThreads, comm::Kind::kGloo,
                                                          comm::Kind::kShm)),
                         [](const auto& test) {
                           return fmt::format("{}_{}_{}", std::get<0>(test.param).name,
                                              std::get<1>(test.param) ? "overlap" : "blocking",
                                              comm::Name(std::get<2>(test.param)));
                         });

TEST(Executor, KeepsItsFirstError) {
  const Schedule schedule = Make({.stages = 1, .microbatches = 3});
  FakeWork work({.schedule = &schedule,
                 .max_delay_us = 0,
                 .is_empty = {},
                 .inject = [](const Action& action) {
                   return action.microbatch == 1 ? base::DataLoss("bad shard") : OkStatus();
                 }});
  InlineDevice device;
  const auto stream = device.CreateStream(kernels::StreamPriority::kLow);
  Executor executor(
      {.work = &work, .stream = stream.get(), .clock = base::Clock::Real(), .on_wait = {}});
  work.BeginPass(schedule);
  const Status first = executor.Run(schedule);
  EXPECT_EQ(base::Message(first), "stage 0, F1: bad shard");
  EXPECT_EQ(work.done()[0][0], 1);
  executor.Abort("too late");
  EXPECT_EQ(executor.Run(schedule), first);
}

TEST(Executor, AbortEndsAPassWithoutLinks) {
  const Schedule schedule = Make({.stages = 1, .microbatches = 3});
  Executor* running = nullptr;
  FakeWork work({.schedule = &schedule,
                 .max_delay_us = 0,
                 .is_empty = {},
                 .inject = [&](const Action& action) {
                   if (action.microbatch == 1) running->Abort("told to leave");
                   return OkStatus();
                 }});
  InlineDevice device;
  const auto stream = device.CreateStream(kernels::StreamPriority::kLow);
  Executor executor(
      {.work = &work, .stream = stream.get(), .clock = base::Clock::Real(), .on_wait = {}});
  running = &executor;
  work.BeginPass(schedule);
  EXPECT_EQ(executor.Run(schedule).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(work.done()[0], (std::array<int, 2>{2, 1}));
}

// One stage by hand: a forward takes 2 s, a backward 5 s, and nothing waits.
TEST(Executor, TimesAreThoseOfTheClock) {
  const Schedule schedule = Make({.stages = 1, .microbatches = 3});
  base::ManualClock clock;
  FakeWork work({.schedule = &schedule,
                 .max_delay_us = 0,
                 .is_empty = {},
                 .inject = [&](const Action& action) {
                   clock.Advance(std::chrono::seconds(action.kind == ActionKind::kForward ? 2 : 5));
                   return OkStatus();
                 }});
  InlineDevice device;
  const auto stream = device.CreateStream(kernels::StreamPriority::kLow);
  Executor executor({.work = &work, .stream = stream.get(), .clock = &clock, .on_wait = {}});
  for (int pass = 0; pass < 2; ++pass) {
    work.BeginPass(schedule);
    ASSERT_TRUE(executor.Run(schedule).ok());
    EXPECT_EQ(executor.times().forward, 6);
    EXPECT_EQ(executor.times().backward, 15);
    EXPECT_EQ(executor.times().total, 21);
    EXPECT_EQ(executor.times().wait(), 0);
  }
}

// What a stage waited for and what it computed are parts of its pass, and do not overlap.
TEST(Executor, WaitingAndComputingMakeUpThePass) {
  const Schedule schedule = Make({.stages = 4, .microbatches = 4});
  comm::ThreadsHub hub({});
  std::mutex mu;
  std::set<int> waited;
  const std::vector<Status> results =
      RunStages({.training = &schedule,
                 .passes = {&schedule},
                 .seed = 5,
                 .is_empty = {},
                 .inject = {},
                 .after_pass =
                     [&](int stage, Executor& executor) {
                       const PassTimes& times = executor.times();
                       const std::lock_guard<std::mutex> lock(mu);
                       EXPECT_LE(times.forward + times.backward + times.wait(), times.total);
                       EXPECT_GT(times.forward, 0);
                       EXPECT_GT(times.backward, 0);
                       if (times.activation_in > 0) waited.insert(stage);
                       if (stage == 0) {
                         EXPECT_EQ(times.activation_in, 0);
                         EXPECT_GT(times.gradient_in, 0);
                         EXPECT_EQ(times.gradient_out, 0);
                       }
                       if (stage == 3) {
                         EXPECT_EQ(times.gradient_in, 0);
                         EXPECT_EQ(times.activation_out, 0);
                       }
                     },
                 .factory = [&](int) -> comm::GroupFactory& { return hub; }});
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
  EXPECT_EQ(waited, (std::set<int>{1, 2, 3}));
}

}  // namespace
}  // namespace mt::parallel
