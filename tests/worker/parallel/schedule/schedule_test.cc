// Schedules: Megatron-LM's orders, soundness over a grid of parameters, exact bubbles, and a
// checker that detects every kind of fault.
#include <algorithm>

#include <gtest/gtest.h>

#include "worker/parallel/schedule/check.h"
#include "worker/parallel/schedule/generate.h"
#include "worker/parallel/schedule/print.h"
#include "worker/parallel/schedule/rendezvous.h"
#include "worker/parallel/schedule/simulate.h"

namespace mt::parallel {
namespace {

Schedule Make(const ScheduleRequest& request) {
  auto schedule = GenerateSchedule(request);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return std::move(schedule).value();
}

std::string Text(const Schedule& schedule, int stage) {
  std::string text;
  for (const Action& action : schedule.actions[static_cast<size_t>(stage)]) {
    if (!text.empty()) text += ' ';
    text += ActionLabel(schedule, action);
  }
  return text;
}

// Printed by Megatron-LM's schedule table.
TEST(InterleavedOrder, IsMegatrons) {
  EXPECT_EQ(InterleavedOrder(4, 2, 2),
            (std::vector<InterleavedTurn>{
                {0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {3, 0}, {2, 1}, {3, 1}}));
  EXPECT_EQ(InterleavedOrder(5, 2, 3),
            (std::vector<InterleavedTurn>{
                {0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}, {3, 0}, {4, 0}, {3, 1}, {4, 1}}));
}

TEST(GenerateSchedule, OneFOneBWarmsUpByItsDistanceFromTheEnd) {
  const Schedule schedule = Make({.stages = 3, .microbatches = 4});
  EXPECT_EQ(Text(schedule, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(Text(schedule, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(Text(schedule, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(schedule.slots, (std::vector<std::vector<int>>{{3}, {2}, {1}}));
}

TEST(GenerateSchedule, FewMicrobatchesWarmUpNoFurtherThanTheyGo) {
  const Schedule schedule = Make({.stages = 4, .microbatches = 2});
  EXPECT_EQ(Text(schedule, 0), "F0 F1 B0 B1");
  EXPECT_EQ(Text(schedule, 3), "F0 B0 F1 B1");
}

TEST(GenerateSchedule, GPipeRunsAllForwardsFirst) {
  const Schedule schedule = Make({.kind = ScheduleKind::kGPipe, .stages = 2, .microbatches = 3});
  EXPECT_EQ(Text(schedule, 0), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(Text(schedule, 1), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(schedule.slots, (std::vector<std::vector<int>>{{3}, {3}}));
}

// Megatron-LM: warm-up = 2 (PP - rank - 1) + (v - 1) N; backward mirrors the chunks.
TEST(GenerateSchedule, InterleavedOfTwoStages) {
  const Schedule schedule =
      Make({.kind = ScheduleKind::kInterleaved, .stages = 2, .microbatches = 4, .chunks = 2});
  EXPECT_EQ(Text(schedule, 0),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(Text(schedule, 1),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST(GenerateSchedule, ActionsNameSlotsAndLinks) {
  const Schedule schedule =
      Make({.kind = ScheduleKind::kInterleaved, .stages = 2, .microbatches = 4, .chunks = 2});
  const auto& first = schedule.actions[0];
  EXPECT_FALSE(first[0].receives);  // the embedding
  EXPECT_TRUE(first[0].sends);
  EXPECT_EQ(first[0].peer_chunk, 0);
  EXPECT_TRUE(first[2].receives);  // chunk 1 of stage 0 is fed by chunk 0 of stage 1
  const auto& last = schedule.actions[1];
  EXPECT_TRUE(last[0].sends);  // over the wrap-around edge
  EXPECT_EQ(last[0].peer_chunk, 1);
  EXPECT_FALSE(last[2].sends);     // the loss
  EXPECT_FALSE(last[3].receives);  // whose backward needs no gradient from outside
}

// The published window of 8 stages with 3 chunks: 16, 15 and 8 on the first stage.
TEST(GenerateSchedule, SlotsOfAWideInterleavedPipeline) {
  const Schedule schedule =
      Make({.kind = ScheduleKind::kInterleaved, .stages = 8, .microbatches = 32, .chunks = 3});
  EXPECT_EQ(schedule.slots[0], (std::vector<int>{16, 15, 8}));
}

TEST(GenerateSchedule, RefusesWhatCannotRun) {
  const auto error = [](const ScheduleRequest& request) {
    const auto schedule = GenerateSchedule(request);
    EXPECT_EQ(schedule.status().code(), absl::StatusCode::kInvalidArgument);
    return base::Message(schedule.status());
  };
  error({.stages = 0});
  error({.microbatches = 0});
  EXPECT_NE(error({.stages = 2, .chunks = 2}).find("interleaved"), std::string::npos);
  EXPECT_NE(
      error({.kind = ScheduleKind::kInterleaved, .stages = 4, .microbatches = 10, .chunks = 2})
          .find("8 or 12"),
      std::string::npos);
  EXPECT_NE(error({.kind = ScheduleKind::kInterleaved, .stages = 1, .microbatches = 4, .chunks = 2})
                .find("2 or more"),
            std::string::npos);
  EXPECT_NE(error({.kind = ScheduleKind::kInterleaved,
                   .stages = 4,
                   .microbatches = 6,
                   .chunks = 2,
                   .group = 3})
                .find("below"),
            std::string::npos);
}

struct Case {
  ScheduleKind kind;
  int chunks;
};

// PP 2-16, m 1-64, v 1-4: sound, and with equal stage times the bubble is (p-1)/m, or (p-1)/(v m).
TEST(Grid, EveryScheduleIsSoundAndItsBubbleExact) {
  int64_t checked = 0;
  for (const Case& c : {Case{ScheduleKind::kGPipe, 1}, Case{ScheduleKind::kOneFOneB, 1},
                        Case{ScheduleKind::kInterleaved, 1}, Case{ScheduleKind::kInterleaved, 2},
                        Case{ScheduleKind::kInterleaved, 3}, Case{ScheduleKind::kInterleaved, 4}}) {
    for (int stages = 2; stages <= 16; ++stages) {
      for (int m = 1; m <= 64; ++m) {
        if (c.kind == ScheduleKind::kInterleaved && m % stages != 0) continue;
        const Schedule schedule =
            Make({.kind = c.kind, .stages = stages, .microbatches = m, .chunks = c.chunks});
        SCOPED_TRACE(fmt::format("{} p {} m {} v {}", Name(c.kind), stages, m, c.chunks));
        const Status sound = CheckSchedule(schedule);
        ASSERT_TRUE(sound.ok()) << sound;
        const auto timeline = SimulateSchedule(schedule, {.forward = 1, .backward = 2});
        ASSERT_TRUE(timeline.ok());
        const int64_t work = int64_t{3} * m * c.chunks;
        // bubble / work = (p - 1) / (v m), in whole numbers.
        ASSERT_EQ(timeline->bubble * c.chunks * m, (stages - 1) * work);
        ASSERT_EQ(timeline->end, work + timeline->bubble);
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 2'000);
}

TEST(Grid, LargerGroupsAreSound) {
  for (int stages = 2; stages <= 5; ++stages) {
    for (int group = stages; group <= 2 * stages; ++group) {
      for (int rounds = 1; rounds <= 3; ++rounds) {
        const Schedule schedule = Make({.kind = ScheduleKind::kInterleaved,
                                        .stages = stages,
                                        .microbatches = group * rounds,
                                        .chunks = 3,
                                        .group = group});
        EXPECT_TRUE(CheckSchedule(schedule).ok()) << CheckSchedule(schedule);
      }
    }
  }
}

TEST(Grid, OneStageNeedsNoLink) {
  const Schedule schedule = Make({.stages = 1, .microbatches = 3});
  EXPECT_EQ(Text(schedule, 0), "F0 B0 F1 B1 F2 B2");
  EXPECT_TRUE(CheckSchedule(schedule).ok());
  for (const Action& action : schedule.actions[0]) EXPECT_FALSE(action.sends || action.receives);
}

class Broken : public testing::Test {
 protected:
  std::string ErrorOf() const {
    const Status status = CheckSchedule(schedule_);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return base::Message(status);
  }
  std::vector<Action>& stage(size_t index) { return schedule_.actions[index]; }
  Schedule schedule_ = Make({.stages = 3, .microbatches = 4});
};

TEST_F(Broken, AMissingActionIsFound) {
  stage(1).pop_back();
  EXPECT_NE(ErrorOf().find("stage 1, chunk 0: 4 forwards and 3 backwards"), std::string::npos);
}

TEST_F(Broken, AnActionTwiceIsFound) {
  stage(0).push_back(stage(0).back());
  EXPECT_NE(ErrorOf().find("stage 0, B3: out of order"), std::string::npos);
}

TEST_F(Broken, TooFewSlotsAreFound) {
  schedule_.slots[0][0] = 2;
  for (Action& action : stage(0)) action.slot = action.microbatch % 2;
  EXPECT_NE(ErrorOf().find("stage 0, F2: its slot is in use"), std::string::npos);
}

TEST_F(Broken, ASenderWithAnotherSlotInMindIsFound) {
  stage(0)[1].peer_slot ^= 1;
  EXPECT_NE(ErrorOf().find("stage 1, F1: stage 0 sends something else"), std::string::npos);
}

TEST_F(Broken, AGradientThatNobodySendsIsFound) {
  for (Action& action : stage(2)) action.sends = false;
  EXPECT_NE(ErrorOf().find("nobody sends"), std::string::npos);
}

// Two microbatches at a time on stage 0, but stage 1 wants three forwards first: each waits for
// the other, although every list by itself is complete and ordered.
TEST(Deadlock, ACircleOfWaitsIsFoundWithItsMembers) {
  Schedule schedule = Make({.kind = ScheduleKind::kGPipe, .stages = 2, .microbatches = 4});
  const Schedule tight = Make({.stages = 3, .microbatches = 4});
  schedule.actions[0] = tight.actions[1];  // F0 F1 B0 F2 B1 F3 B2 B3
  schedule.slots[0] = {2};
  for (Action& action : schedule.actions[0]) {
    const bool forward = action.kind == ActionKind::kForward;
    action.receives = !forward;
    action.sends = forward;
    action.slot = action.microbatch % 2;
    action.peer_slot = action.microbatch;
  }
  for (Action& action : schedule.actions[1]) {
    if (action.sends) action.peer_slot = action.microbatch % 2;
  }
  const std::string error = base::Message(CheckSchedule(schedule));
  EXPECT_NE(error.find("deadlocks: stage 0 at B0, stage 1 at F2"), std::string::npos) << error;
}

// Messages of NCCL, whose sends end when their receives have begun.
TEST(Rendezvous, OneActionAheadSufficesWhereGroupsAreAsLargeAsThePipeline) {
  for (const ScheduleKind kind :
       {ScheduleKind::kGPipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved}) {
    for (int stages = 2; stages <= 8; ++stages) {
      for (const int rounds : {1, 2, 3}) {
        ScheduleRequest request{.kind = kind, .stages = stages, .microbatches = rounds * stages};
        if (kind == ScheduleKind::kInterleaved) request.chunks = 3;
        const Schedule schedule = GenerateSchedule(request).value();
        EXPECT_EQ(ReceivesAhead(schedule), 1) << Name(kind) << ", " << stages << " stages";
        EXPECT_EQ(ReceivesAhead(ForwardOnly(schedule, 7)), 1) << Name(kind);
      }
    }
  }
}

TEST(Rendezvous, LargerGroupsReceiveFurtherAhead) {
  const Schedule schedule = GenerateSchedule({.kind = ScheduleKind::kInterleaved,
                                              .stages = 2,
                                              .microbatches = 12,
                                              .chunks = 2,
                                              .group = 6})
                                .value();
  EXPECT_FALSE(EndsByRendezvous(schedule, 1));
  EXPECT_FALSE(EndsByRendezvous(schedule, 2));
  EXPECT_EQ(ReceivesAhead(schedule), 3);
}

// A chunk without layers waits until what it hands on has left.
TEST(Rendezvous, ChunksWithoutLayersReceiveFurtherAhead) {
  ScheduleRequest request{
      .kind = ScheduleKind::kInterleaved, .stages = 2, .microbatches = 4, .chunks = 2};
  EXPECT_EQ(ReceivesAhead(GenerateSchedule(request).value()), 1);
  request.hand_on = {1, 2};
  EXPECT_EQ(ReceivesAhead(GenerateSchedule(request).value()), 2);
  request.kind = ScheduleKind::kOneFOneB;
  request.chunks = 1;
  request.stages = 4;
  EXPECT_EQ(ReceivesAhead(GenerateSchedule(request).value()), 1);
}

TEST(SimulateSchedule, TransfersTakeTimeButOverlapWithWork) {
  const Schedule schedule = Make({.stages = 2, .microbatches = 8});
  const auto fast = SimulateSchedule(schedule, {.forward = 10, .backward = 20, .transfer = 0});
  const auto slow = SimulateSchedule(schedule, {.forward = 10, .backward = 20, .transfer = 5});
  ASSERT_TRUE(fast.ok() && slow.ok());
  EXPECT_EQ(fast->end, 8 * 30 + 30);
  EXPECT_GT(slow->end, fast->end);
  // Not every one of the 16 transfers is in the way.
  EXPECT_LT(slow->end, fast->end + 16 * 5);
}

TEST(PrintSchedule, DrawsOneLinePerStage) {
  const Schedule schedule = Make({.stages = 2, .microbatches = 2});
  const auto timeline = SimulateSchedule(schedule, {});
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(PrintSchedule(schedule, *timeline),
            "stage 0  |F0|F1|..|..|B0|B0|..|B1|B1|\n"
            "stage 1  |..|F0|B0|B0|F1|B1|B1|..|..|\n"
            "bubble 3 of 9 ticks (50.0 % over the work)\n"
            "slots 0: 2, 1: 1\n");
}

TEST(PrintSchedule, CutsATimelineThatIsTooWide) {
  const Schedule schedule = Make({.stages = 2, .microbatches = 2});
  const auto timeline = SimulateSchedule(schedule, {});
  ASSERT_TRUE(timeline.ok());
  const std::string head =
      "ticks 0 to 4\n"
      "stage 0  |F0|F1|..|..|B0|\n"
      "stage 1  |..|F0|B0|B0|F1|\n"
      "ticks 5 to 8\n"
      "stage 0  |B0|..|B1|B1|\n"
      "stage 1  |B1|B1|..|..|\n";
  EXPECT_EQ(PrintSchedule(schedule, *timeline, 25).substr(0, head.size()), head);
  EXPECT_EQ(PrintSchedule(schedule, *timeline, 27).substr(0, head.size()), head);
  EXPECT_EQ(PrintSchedule(schedule, *timeline, 1).find("ticks 8 to 8"), 8 * 41);
  // All of it fits.
  EXPECT_EQ(PrintSchedule(schedule, *timeline, 37), PrintSchedule(schedule, *timeline));
}

// Evaluation: every chunk of every microbatch once, slots free after their forward.
TEST(ForwardOnly, RunsAnyNumberOfMicrobatchesInTheTrainingSlots) {
  const Schedule training = Make({.kind = ScheduleKind::kInterleaved,
                                  .stages = 2,
                                  .microbatches = 8,
                                  .chunks = 2,
                                  .group = 4});
  const Schedule evaluation = ForwardOnly(training, 3);
  EXPECT_EQ(Text(evaluation, 0), "F0.0 F1.0 F0.1 F1.1 F2.0 F2.1");
  EXPECT_EQ(evaluation.slots, training.slots);
  EXPECT_TRUE(evaluation.forward_only);
  EXPECT_TRUE(CheckSchedule(evaluation).ok()) << CheckSchedule(evaluation);
}

TEST(ForwardOnly, IsSoundOverAGrid) {
  for (const int stages : {1, 2, 3, 5, 8}) {
    for (const int chunks : {1, 2, 4}) {
      if (stages == 1 && chunks > 1) continue;
      const Schedule training =
          Make({.kind = chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneFOneB,
                .stages = stages,
                .microbatches = stages,
                .chunks = chunks});
      for (const int microbatches : {1, 2, 7, 16, 33}) {
        const Schedule evaluation = ForwardOnly(training, microbatches);
        EXPECT_TRUE(CheckSchedule(evaluation).ok())
            << stages << " stages, " << chunks << " chunks: " << CheckSchedule(evaluation);
        // Nothing waits but for the first microbatch to come through and, after the last whole
        // group, for the ring.
        const auto timeline = SimulateSchedule(evaluation, {});
        ASSERT_TRUE(timeline.ok());
        if (microbatches % stages == 0) {
          EXPECT_EQ(timeline->end, microbatches * chunks + stages - 1);
        }
      }
    }
  }
}

TEST(ForwardOnly, CheckFindsABackwardAndAStolenSlot) {
  Schedule schedule = ForwardOnly(Make({.stages = 2, .microbatches = 4}), 4);
  schedule.actions[0].push_back({.kind = ActionKind::kBackward, .microbatch = 0});
  EXPECT_FALSE(CheckSchedule(schedule).ok());
  schedule.actions[0].pop_back();
  ASSERT_TRUE(CheckSchedule(schedule).ok());
  schedule.actions[0][2].peer_slot = 1;
  EXPECT_FALSE(CheckSchedule(schedule).ok());
}

}  // namespace
}  // namespace mt::parallel
