// Traces of a run's steps: a profile that a command asks for, on every rank and kind of device, and
// what refuses it, ends it early or leaves it without a step.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/report/trace_stream.h"
#include "kernels/async/async_world.h"
#include "megatrain/v1/trace.pb.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

namespace v1 = megatrain::v1;
using testing::HasSubstr;

Command ProfileOf(int64_t steps, const std::string& id = "profile") {
  return {.kind = CommandKind::kProfile, .id = id, .profile_steps = steps};
}

class ProfileTest : public TrainTest {
 protected:
  ProfileTest() {
    layout_ = {"parallel.data=2", "checkpoint.directory=none"};
    adjust_ = [this](int rank, TrainArgs* args) {
      if (rank == 0) args->trace_directory = dir_.path();
      args->job_uid = "uid";
    };
  }
  // The trace that a profile has left, which must be the one that its result names.
  v1::JobTrace Read(const CommandResult& result) const {
    v1::JobTrace trace;
    EXPECT_TRUE(result.error.ok()) << result.error;
    if (!result.profile) {
      ADD_FAILURE() << "no profile";
      return trace;
    }
    const auto bytes = base::ReadFile(base::JoinPath(dir_.path(), result.profile->trace));
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(static_cast<int64_t>(bytes->size()), result.profile->bytes);
    EXPECT_TRUE(trace.ParseFromString(*bytes));
    return trace;
  }
};

const CommandResult& Done(const std::vector<RankOutcome>& outcomes, const std::string& id) {
  static const CommandResult kNone;
  const auto& done = outcomes[0].seen.commands_done;
  const auto found = std::ranges::find(done, id, &CommandResult::id);
  EXPECT_NE(found, done.end()) << id;
  return found == done.end() ? kNone : *found;
}

const v1::TraceStream* StreamOf(const v1::RankTrace& rank, const std::string& name) {
  for (const v1::TraceStream& stream : rank.streams())
    if (stream.name() == name) return &stream;
  return nullptr;
}

// Streams are orders of work: nothing of one overlaps. Every step asked for is there.
void ExpectSound(const v1::JobTrace& trace, int64_t first, int64_t last) {
  for (const v1::RankTrace& rank : trace.ranks()) {
    EXPECT_EQ(rank.first_step(), first);
    EXPECT_EQ(rank.last_step(), last);
    EXPECT_EQ(rank.dropped(), 0);
    for (const v1::TraceStream& stream : rank.streams()) {
      int64_t end = 0;
      std::set<int64_t> steps;
      for (const report::TraceSpan& span : report::SpansOf(rank, stream)) {
        EXPECT_GE(span.begin, end) << "rank " << rank.rank() << ", " << stream.name();
        EXPECT_GE(span.end, span.begin);
        end = span.end;
        steps.insert(span.step);
      }
      if (stream.name() != "compute" && stream.calls() == 0) continue;
      for (int64_t step = first; step <= last; ++step)
        EXPECT_TRUE(steps.contains(step)) << stream.name() << " lacks step " << step;
    }
  }
}

// What rank 0's phases of the traced steps add up to is what its records say.
void ExpectRecorded(const v1::RankTrace& rank, const std::vector<StepRecord>& records) {
  std::map<std::string, double> traced, recorded;
  for (const report::TraceSpan& span : report::SpansOf(rank, *StreamOf(rank, "compute")))
    traced[span.label] += static_cast<double>(span.end - span.begin) / 1e9;
  for (const StepRecord& record : records) {
    if (record.step() < rank.first_step() || record.step() > rank.last_step()) continue;
    for (const auto& [phase, spent] : record.phase_seconds()) recorded[phase] += spent;
  }
  for (const char* phase : {"forward", "backward", "tp_comm", "pp_wait", "dp_comm", "optimizer"})
    EXPECT_NEAR(traced[phase], recorded[phase], 0.01 * recorded[phase] + 1e-6) << phase;
}

// When a device may lack work is part of what its compute stream was at.
void ExpectStarvedWithinCompute(const v1::RankTrace& rank) {
  const v1::TraceStream* const starved = StreamOf(rank, "starved");
  ASSERT_NE(starved, nullptr) << rank.rank();
  std::map<std::pair<int64_t, int64_t>, report::TraceSpan> phases;  // by step and begin
  for (const report::TraceSpan& span : report::SpansOf(rank, *StreamOf(rank, "compute")))
    phases[{span.step, span.begin}] = span;
  for (const report::TraceSpan& span : report::SpansOf(rank, *starved)) {
    const auto phase = phases.find({span.step, span.begin});
    ASSERT_NE(phase, phases.end()) << "it begins with a phase";
    EXPECT_EQ(span.label, phase->second.label);
    EXPECT_LE(span.end, phase->second.end);
  }
}

TEST_F(ProfileTest, StepsOfEveryRankAreTracedAndTheRunIsTheSame) {
  layout_ = CubeLayout();
  layout_.emplace_back("checkpoint.directory=none");
  layout_.emplace_back("model.tie_embeddings=true");
  const auto calm = Run({});
  const auto traced = Run({}, {{5, ProfileOf(3)}});
  ExpectClean(traced, 20);
  ExpectEqualCurve(traced[0].seen.steps, calm[0].seen.steps);
  const CommandResult& done = Done(traced, "profile");
  EXPECT_EQ(done.carrier_step, 5);
  EXPECT_EQ(done.step, 9);
  const v1::JobTrace trace = Read(done);
  ASSERT_EQ(trace.ranks_size(), 8) << "every rank";
  EXPECT_EQ(trace.note(), "");
  ExpectSound(trace, 7, 9);
  ExpectRecorded(trace.ranks(0), traced[0].seen.steps);
  for (const v1::RankTrace& rank : trace.ranks()) {
    const bool first_stage = rank.rank() < 4;
    for (const char* name : {"compute", "exposed", "tp", "tp-control", "tied", "dp-reduce",
                             "dp-gather", "control", "host"}) {
      const v1::TraceStream* const stream = StreamOf(rank, name);
      ASSERT_NE(stream, nullptr) << name << " of rank " << rank.rank();
      EXPECT_GT(stream->label_size(), 0) << name;
      if (stream->calls() > 0) {
        EXPECT_EQ(stream->calls(), stream->label_size()) << "every call of " << name;
      }
    }
    const v1::TraceStream* const link = StreamOf(rank, first_stage ? "pp-act 0>1" : "pp-grad 1>0");
    ASSERT_NE(link, nullptr) << rank.rank();
    EXPECT_EQ(link->receiver(), first_stage ? rank.rank() + 4 : rank.rank() - 4);
  }
}

// The same on devices that enqueue, whose streams run at moments that are drawn.
TEST_F(ProfileTest, DevicesThatEnqueueAreTraced) {
  const v1::JobSpec job =
      TinyJob({"parallel.tensor=2", "parallel.pipeline=2", "training.train_iters=8",
               "checkpoint.directory=none", "training.eval.every_iters=0", "model.layers=4"});
  kernels::async::AsyncWorld world({.seed = 11});
  Script script({{2, ProfileOf(2)}});
  const auto outcomes =
      RunJob(job, {.root = dir_.path(), .commands = &script, .world = &world, .adjust = adjust_});
  ExpectClean(outcomes, 8);
  EXPECT_THAT(world.Races(), testing::IsEmpty());
  const v1::JobTrace trace = Read(Done(outcomes, "profile"));
  ASSERT_EQ(trace.ranks_size(), 4);
  ExpectSound(trace, 4, 5);
  ExpectRecorded(trace.ranks(0), outcomes[0].seen.steps);
  for (const v1::RankTrace& rank : trace.ranks()) ExpectStarvedWithinCompute(rank);
}

TEST_F(ProfileTest, OneProfileAtATimeAndAnotherAfterIt) {
  const auto outcomes = Run(
      {},
      {{3, ProfileOf(4, "first")}, {5, ProfileOf(2, "meanwhile")}, {14, ProfileOf(1, "later")}});
  ExpectClean(outcomes, 20);
  EXPECT_THAT(base::Message(Done(outcomes, "meanwhile").error),
              HasSubstr("another profile is under way, of steps 5 to 8"));
  EXPECT_FALSE(Done(outcomes, "meanwhile").profile.has_value());
  const CommandResult& first = Done(outcomes, "first");
  ASSERT_TRUE(first.error.ok()) << first.error;
  EXPECT_EQ(first.profile->first_step, 5);
  EXPECT_EQ(first.profile->last_step, 8);
  const v1::JobTrace later = Read(Done(outcomes, "later"));
  ExpectSound(later, 16, 16);
}

TEST_F(ProfileTest, WhatCannotBeTracedIsRefusedInWords) {
  const auto outcomes = Run({}, {{1, ProfileOf(0, "none")},
                                 {2, ProfileOf(21, "many")},
                                 {4, {CommandKind::kHold, "hold"}},
                                 {8, ProfileOf(1, "held")},
                                 {10, {CommandKind::kResume, "resume"}}});
  ExpectClean(outcomes, 20);
  EXPECT_THAT(base::Message(Done(outcomes, "none").error), HasSubstr("1 to 20 steps, not of 0"));
  EXPECT_THAT(base::Message(Done(outcomes, "many").error), HasSubstr("not of 21"));
  EXPECT_THAT(base::Message(Done(outcomes, "held").error), HasSubstr("the ranks are held"));
}

// Before its own steps, too: they would be lost.
TEST_F(ProfileTest, ABenchmarkTracesItsOwnStepsAlone) {
  const auto adjust = std::exchange(adjust_, nullptr);
  adjust_ = [&](int rank, TrainArgs* args) {
    adjust(rank, args);
    args->trace = {.first = 6, .last = 8};
  };
  const auto outcomes = Run({}, {{3, ProfileOf(4, "before")}, {12, ProfileOf(1, "after")}});
  ExpectClean(outcomes, 20);
  for (const char* id : {"before", "after"}) {
    EXPECT_THAT(base::Message(Done(outcomes, id).error),
                HasSubstr("a benchmark traces its own steps 6 to 8"));
  }
}

TEST_F(ProfileTest, WithoutAPlaceForTheTraceNoRankBegins) {
  adjust_ = nullptr;
  const auto outcomes = Run({}, {{3, ProfileOf(2)}});
  ExpectClean(outcomes, 20);
  EXPECT_THAT(base::Message(Done(outcomes, "profile").error), HasSubstr("keeps no traces"));
}

TEST_F(ProfileTest, APlaceThatCannotBeWrittenIsTold) {
  adjust_ = [](int rank, TrainArgs* args) {
    if (rank == 0) args->trace_directory = "/proc/no/such/folder";
  };
  const auto outcomes = Run({}, {{3, ProfileOf(2)}});
  ExpectClean(outcomes, 20);
  EXPECT_THAT(base::Message(Done(outcomes, "profile").error), HasSubstr("/proc/no/such/folder"));
}

TEST_F(ProfileTest, AHoldEndsAProfileWithTheStepsThatWereDone) {
  const auto outcomes = Run({}, {{3, ProfileOf(10)},
                                 {6, {CommandKind::kHold, "hold"}},
                                 {12, {CommandKind::kResume, "resume"}}});
  ExpectClean(outcomes, 20);
  const v1::JobTrace trace = Read(Done(outcomes, "profile"));
  EXPECT_THAT(trace.note(), HasSubstr("3 of 10 steps: the ranks were held after step 7"));
  ExpectSound(trace, 5, 7);
}

TEST_F(ProfileTest, TheEndOfTheRunEndsAProfile) {
  const auto outcomes = Run({}, {{16, ProfileOf(10, "cut")}});
  ExpectClean(outcomes, 20);
  const v1::JobTrace cut = Read(Done(outcomes, "cut"));
  EXPECT_EQ(cut.note(), "3 of 10 steps: step 20 was the run's last one");
  ExpectSound(cut, 18, 20);
  const auto stopped =
      Run({}, {{3, ProfileOf(10, "stopped")}, {6, {CommandKind::kStopWithoutSave, "stop"}}});
  const v1::JobTrace trace = Read(Done(stopped, "stopped"));
  EXPECT_THAT(trace.note(), HasSubstr("the run ended after step 7"));
  ExpectSound(trace, 5, 7);
}

TEST_F(ProfileTest, OneThatComesTooLateHasNoTrace) {
  for (const int64_t poll : {19, 20}) {
    const auto outcomes = Run({}, {{poll, ProfileOf(2)}});
    ExpectClean(outcomes, 20);
    EXPECT_FALSE(Done(outcomes, "profile").profile.has_value());
    EXPECT_THAT(base::Message(Done(outcomes, "profile").error), HasSubstr("step 20")) << poll;
  }
}

}  // namespace
}  // namespace mt::train
