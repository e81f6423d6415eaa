// Commands by themselves: their bits, those that are pending, and the relay with a fake run behind
// it, so that each test sees which call comes before which step.
#include "worker/train/command_relay.h"

#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/train/fake_run.h"

namespace mt::train {
namespace {

TEST(CommandBitsTest, EveryCombinationComesBack) {
  for (int i = 0; i < 4096; ++i) {
    const CommandBits bits{.stop_with_save = (i & 1) != 0,
                           .stop_without_save = (i & 2) != 0,
                           .checkpoint_now = (i & 4) != 0,
                           .hold = (i & 8) != 0,
                           .resume = (i & 16) != 0,
                           .update = (i & 32) != 0,
                           .release = (i & 64) != 0,
                           .profile = (i & 128) != 0,
                           .decode = (i & 256) != 0,
                           .save_due = (i & 512) != 0,
                           .time_over = (i & 1024) != 0,
                           .save_over = (i & 2048) != 0};
    EXPECT_EQ(bits.Encode(), i);
    EXPECT_EQ(CommandBits::Decode(i), bits);
    EXPECT_EQ(bits.empty(), i == 0);
  }
  EXPECT_DEATH(CommandBits::Decode(2.5), "command bits");
  EXPECT_DEATH(CommandBits::Decode(4096), "command bits");
}

TEST(CommandBitsTest, EachKindHasItsOwnBit) {
  const std::pair<CommandKind, CommandBits> kinds[] = {
      {CommandKind::kStopWithSave, {.stop_with_save = true}},
      {CommandKind::kStopWithoutSave, {.stop_without_save = true}},
      {CommandKind::kCheckpointNow, {.checkpoint_now = true}},
      {CommandKind::kHold, {.hold = true}},
      {CommandKind::kResume, {.resume = true}},
      {CommandKind::kUpdate, {.update = true}},
      {CommandKind::kRelease, {.release = true}},
      {CommandKind::kProfile, {.profile = true}},
      {CommandKind::kDecode, {.decode = true}}};
  for (const auto& [kind, expected] : kinds) {
    CommandBits bits;
    bits.Add(kind);
    EXPECT_EQ(bits, expected);
  }
}

TEST(PendingCommandsTest, ActedInTheOrderSent) {
  PendingCommands commands;
  commands.Sent(3, {.kind = CommandKind::kHold, .id = "a"});
  commands.Sent(4, {.kind = CommandKind::kUpdate, .id = "b", .settings = RunSettings{}});
  commands.Sent(9, {.kind = CommandKind::kResume, .id = "c"});
  EXPECT_TRUE(commands.TakeActed(2).empty());
  EXPECT_FALSE(commands.UpdateOf(3).has_value());
  EXPECT_EQ(commands.UpdateOf(4), RunSettings{});
  const std::vector<SentCommand> acted = commands.TakeActed(4);
  ASSERT_EQ(acted.size(), 2U);
  EXPECT_EQ(acted[0].command.id, "a");
  EXPECT_EQ(acted[0].step, 3);
  EXPECT_EQ(acted[1].command.id, "b");
  EXPECT_EQ(acted[1].step, 4);
  EXPECT_TRUE(commands.TakeActed(8).empty());
  EXPECT_EQ(commands.TakeActed(9).at(0).command.id, "c");
}

TEST(CommandRelayTest, TheBitsOfStepKActBeforeStepKPlusTwo) {
  FakeRun run;
  run.Build();
  run.script[3] = {.kind = CommandKind::kCheckpointNow, .id = "save"};
  run.script[5] = {.kind = CommandKind::kStopWithoutSave, .id = "stop"};
  const auto ending = run.RunTo(20);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(*ending, Ending::kStopWithoutSave);
  EXPECT_EQ(run.cursor.last(), 6);
  EXPECT_EQ(run.calls, Calls{"4: save"});
  ASSERT_EQ(run.done.size(), 1U) << "the stop is reported when the run is over";
  EXPECT_EQ(run.done[0].id, "save");
  EXPECT_EQ(run.done[0].carrier_step, 3);
  EXPECT_EQ(run.done[0].step, 4);
  EXPECT_EQ(run.done[0].checkpoint->step, 4);
}

TEST(CommandRelayTest, OtherRanksFollowButNeverAsk) {
  FakeRun run(/*is_rank_0=*/false);
  run.Build(seconds(1));
  run.relay().BeginTraining();
  run.save_due = true;
  run.script[1] = {.kind = CommandKind::kStopWithSave, .id = "nobody"};
  run.from_rank_0[2] = {.update = true};
  run.from_rank_0[4] = {.hold = true};
  run.from_rank_0_idle = {{}, {.checkpoint_now = true}, {.resume = true}};
  run.from_rank_0[8] = {.stop_with_save = true};
  const auto ending = run.RunTo(20);
  EXPECT_EQ(*ending, Ending::kStopWithSave);
  EXPECT_EQ(run.cursor.last(), 9);
  EXPECT_EQ(run.calls, (Calls{"3: update", "5: held", "5: idle", "5: idle", "5: save", "5: idle",
                              "5: resumed after 0 s"}));
  run.relay().ReportAtEnd();
  EXPECT_TRUE(run.done.empty()) << "rank 0 reports";
  EXPECT_EQ(run.polls, 0);
}

TEST(CommandRelayTest, HeldRanksActOnWhatIsUnderWayAndThenOnEachIdleReduction) {
  FakeRun run;
  run.Build();
  run.script[4] = {.kind = CommandKind::kHold, .id = "hold"};
  run.script[5] = {.kind = CommandKind::kCheckpointNow, .id = "save"};
  run.script[8] = {.kind = CommandKind::kResume, .id = "resume"};
  ASSERT_TRUE(run.RunTo(7).ok());
  EXPECT_EQ(run.calls,
            (Calls{"5: held", "5: save", "5: idle", "5: idle", "5: idle", "5: resumed after 3 s"}));
  ASSERT_EQ(run.done.size(), 3U);
  EXPECT_EQ(run.done[0].carrier_step, 4);
  EXPECT_EQ(run.done[1].carrier_step, 5) << "enqueued before the hold acted";
  EXPECT_EQ(run.done[1].step, 5);
  EXPECT_EQ(run.done[2].carrier_step, 0) << "an idle reduction carried it";
  using State = std::pair<TrainState, int64_t>;
  EXPECT_EQ(run.states, (std::vector<State>{{TrainState::kHeld, 5}, {TrainState::kTraining, 5}}));
}

TEST(CommandRelayTest, ASaveByTheClockIsAskedForOnceUntilItHasActed) {
  FakeRun run;
  run.Build();
  run.save_due = true;
  ASSERT_TRUE(run.RunTo(4).ok());
  EXPECT_TRUE(run.carried[1].save_due);
  EXPECT_FALSE(run.carried[2].save_due) << "step 1's has not acted";
  EXPECT_TRUE(run.carried[3].save_due);
  EXPECT_EQ(run.calls, Calls{"2: save"}) << "with step 2 done, before step 3";
  EXPECT_FALSE(run.relay().IsSavePending()) << "a periodic save is no part of the end";
}

TEST(CommandRelayTest, ExitAfterCountsFromTheBeginOfTraining) {
  FakeRun run;
  run.Build(seconds(3));
  run.clock.Advance(seconds(60));
  run.relay().BeginTraining();
  EXPECT_EQ(*run.RunTo(20), Ending::kExitAfter);
  // Three seconds have passed when step 4 is built; its bits act before step 6.
  EXPECT_EQ(run.cursor.last(), 5);
  // A run that is held first begins to train when it is let go.
  FakeRun held;
  held.Build(seconds(3));
  held.script[10] = {.kind = CommandKind::kResume};
  ASSERT_TRUE(held.relay().Hold().ok());
  EXPECT_EQ(*held.RunTo(20), Ending::kExitAfter);
  EXPECT_EQ(held.cursor.last(), 5);
}

TEST(CommandRelayTest, OfSeveralWaysToStopTheOneThatSavesIsTaken) {
  FakeRun run(/*is_rank_0=*/false);
  run.Build();
  run.from_rank_0[1] = {.stop_with_save = true, .stop_without_save = true, .time_over = true};
  EXPECT_EQ(*run.RunTo(9), Ending::kStopWithSave);
  FakeRun other(/*is_rank_0=*/false);
  other.Build();
  other.from_rank_0[1] = {.stop_without_save = true, .time_over = true};
  EXPECT_EQ(*other.RunTo(9), Ending::kStopWithoutSave);
}

TEST(CommandRelayTest, AFailedSaveThatEndsTheRunIsReportedFirst) {
  FakeRun run;
  run.Build();
  run.script[1] = {.kind = CommandKind::kCheckpointNow, .id = "save"};
  run.save_ends_run = base::Internal("disk full");
  run.saved = run.save_ends_run;
  EXPECT_EQ(run.RunTo(9).status(), run.save_ends_run);
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_EQ(run.done[0].error, run.save_ends_run);
  EXPECT_FALSE(run.done[0].checkpoint.has_value());
}

TEST(CommandRelayTest, AReleaseEndsTheRunOnceItIsSaved) {
  FakeRun run;
  run.Build();
  run.script[3] = {.kind = CommandKind::kRelease, .id = "release"};
  EXPECT_EQ(*run.RunTo(20), Ending::kStopWithSave);
  EXPECT_EQ(run.calls, Calls{"4: save"});
  run.relay().ReportAtEnd();
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_EQ(run.done[0].checkpoint->step, 4);
  EXPECT_FALSE(run.done[0].held);
}

TEST(CommandRelayTest, AReleaseWhoseSaveFailsHoldsAndMayComeAgain) {
  FakeRun run;
  run.Build(seconds(5));  // training.exit_after, which is over when the release acts
  run.relay().BeginTraining();
  run.save_fails = true;
  run.script[5] = {.kind = CommandKind::kRelease, .id = "first"};
  run.from_rank_0[5] = {.release = true, .time_over = true};
  run.from_rank_0_idle = {{}, {.release = true}, {.resume = true}};
  run.script[8] = {.kind = CommandKind::kRelease, .id = "second"};
  run.script[9] = {.kind = CommandKind::kResume, .id = "resume"};
  run.from_rank_0[6] = {};
  run.from_rank_0[7] = {};
  run.from_rank_0[8] = {};
  ASSERT_TRUE(run.RunTo(8).ok());
  EXPECT_EQ(run.calls, (Calls{"6: save", "6: held", "6: idle", "6: idle", "6: save", "6: idle",
                              "6: resumed after 3 s"}));
  ASSERT_EQ(run.done.size(), 3U);
  for (const size_t i : {0, 1}) {
    EXPECT_TRUE(run.done[i].held) << run.done[i].id;
    EXPECT_FALSE(run.done[i].error.ok());
    EXPECT_FALSE(run.done[i].checkpoint.has_value());
    EXPECT_EQ(run.done[i].step, 6);
  }
  EXPECT_EQ(run.done[0].carrier_step, 5);
  EXPECT_EQ(run.done[1].carrier_step, 0);
  EXPECT_EQ(run.done[2].id, "resume");
  EXPECT_FALSE(run.done[2].held);
}

TEST(CommandRelayTest, AReleaseWhoseSaveEndsTheRunHoldsNobody) {
  FakeRun run;
  run.Build();
  run.script[1] = {.kind = CommandKind::kRelease, .id = "release"};
  run.save_ends_run = base::Internal("disk full, strict");
  run.saved = run.save_ends_run;
  EXPECT_EQ(run.RunTo(9).status(), run.save_ends_run);
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_FALSE(run.done[0].held);
  EXPECT_TRUE(run.states.empty());
}

// The run would end by itself before the bits of its last steps act.
TEST(CommandRelayTest, AReleaseWithTheLastStepsSavesOrHolds) {
  for (const int64_t poll : {4, 5}) {
    for (const bool fails : {false, true}) {
      FakeRun run;
      run.Build();
      run.save_fails = fails;
      run.script[poll] = {.kind = CommandKind::kRelease, .id = "release"};
      run.script[8] = {.kind = CommandKind::kResume, .id = "resume"};
      ASSERT_TRUE(run.RunTo(5).ok());
      ASSERT_TRUE(run.ReadUpTo(5).ok());
      EXPECT_TRUE(run.relay().IsSavePending());
      const auto ending = run.relay().ActBeforeEnd();
      ASSERT_TRUE(ending.ok());
      if (!fails) {
        EXPECT_EQ(*ending, Ending::kStopWithSave);
        continue;
      }
      EXPECT_FALSE(ending->has_value()) << "resumed, it ends as it was to";
      EXPECT_EQ(run.calls.front(), "5: save");
      EXPECT_EQ(run.calls.back(), "5: resumed after 3 s");
      EXPECT_TRUE(run.done.at(0).held);
      run.relay().ReportAtEnd();
      EXPECT_EQ(run.done.size(), 2U);
    }
  }
  // Without a release nothing is held up.
  FakeRun run;
  run.Build();
  run.script[5] = {.kind = CommandKind::kHold, .id = "hold"};
  ASSERT_TRUE(run.RunTo(5).ok());
  ASSERT_TRUE(run.ReadUpTo(5).ok());
  EXPECT_FALSE(run.relay().ActBeforeEnd()->has_value());
  EXPECT_TRUE(run.calls.empty());
}

TEST(CommandRelayTest, ALateReleaseHoldsNobody) {
  FakeRun run;
  run.Build();
  run.save_fails = true;
  run.script[1] = {.kind = CommandKind::kRelease, .id = "first"};
  run.script[4] = {.kind = CommandKind::kStopWithoutSave, .id = "stop"};
  run.script[5] = {.kind = CommandKind::kRelease, .id = "late"};
  EXPECT_EQ(*run.RunTo(9), Ending::kStopWithoutSave);
  run.relay().ReportAtEnd();
  ASSERT_EQ(run.done.size(), 3U);
  EXPECT_TRUE(run.done[0].held);
  EXPECT_EQ(run.done[2].id, "late");
  EXPECT_FALSE(run.done[2].held);
}

TEST(CommandRelayTest, AnUpdateTakesItsSettingsAndItsRefusalIsItsResult) {
  FakeRun run;
  run.Build();
  run.script[1] = {
      .kind = CommandKind::kUpdate, .id = "a", .settings = RunSettings{.log_every = 7}};
  run.script[2] = {
      .kind = CommandKind::kUpdate, .id = "b", .settings = RunSettings{.log_every = 8}};
  ASSERT_TRUE(run.RunTo(3).ok());
  run.update_refused = base::NotFound("text.idx");
  ASSERT_TRUE(run.RunTo(4).ok());
  EXPECT_EQ(run.calls, (Calls{"2: update to 7", "3: update to 8"}));
  ASSERT_EQ(run.done.size(), 2U);
  EXPECT_TRUE(run.done[0].error.ok());
  EXPECT_EQ(run.done[1].error, run.update_refused);
}

TEST(CommandRelayTest, TheEndReportsWhatFoundNoStepToActBefore) {
  FakeRun run;
  run.Build();
  run.script[1] = {
      .kind = CommandKind::kUpdate, .id = "refused", .settings = RunSettings{.log_every = 7}};
  run.update_refused = base::NotFound("text.idx");
  run.script[3] = {.kind = CommandKind::kStopWithoutSave, .id = "stop"};
  run.script[4] = {
      .kind = CommandKind::kUpdate, .id = "late", .settings = RunSettings{.log_every = 8}};
  run.script[5] = {.kind = CommandKind::kCheckpointNow, .id = "never"};
  EXPECT_EQ(*run.RunTo(9), Ending::kStopWithoutSave);
  EXPECT_FALSE(run.relay().IsSavePending()) << "no step carried the checkpoint";
  run.saved = base::FailedPrecondition("before the save");
  run.relay().ReportAtEnd();
  ASSERT_EQ(run.done.size(), 4U);
  EXPECT_EQ(run.done[1].id, "stop");
  EXPECT_EQ(run.done[2].id, "late");
  EXPECT_EQ(run.done[2].carrier_step, 4);
  EXPECT_TRUE(run.done[2].error.ok()) << "it is for the next placement";
  EXPECT_EQ(run.done[3].id, "never");
  EXPECT_EQ(run.done[3].carrier_step, 0);
  EXPECT_EQ(run.done[3].error, run.saved);
}

TEST(CommandRelayTest, ASaveThatCameTooLateIsPending) {
  for (const CommandKind kind : {CommandKind::kCheckpointNow, CommandKind::kStopWithSave}) {
    for (const int64_t poll : {4, 5}) {
      FakeRun run;
      run.Build();
      run.script[poll] = {.kind = kind, .id = "late"};
      ASSERT_TRUE(run.RunTo(5).ok());
      ASSERT_TRUE(run.ReadUpTo(5).ok());
      EXPECT_TRUE(run.relay().IsSavePending());
    }
  }
}

// A profile is answered when it has ended, not when it has begun.
TEST(CommandRelayTest, AProfileIsReportedWhenItsTraceIsThere) {
  FakeRun run;
  run.script[2] = {.kind = CommandKind::kProfile, .id = "p", .profile_steps = 3};
  run.Build();
  ASSERT_TRUE(run.RunTo(6).ok());
  EXPECT_TRUE(run.done.empty());
  run.profiled = ProfileRecord{.trace = "trace-a.pb", .first_step = 4, .last_step = 6};
  ASSERT_TRUE(run.RunTo(7).ok());
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_EQ(run.done[0].id, "p");
  EXPECT_EQ(run.done[0].carrier_step, 2);
  EXPECT_EQ(run.done[0].step, 6) << "the last step that was traced";
  EXPECT_TRUE(run.done[0].error.ok());
  EXPECT_EQ(run.done[0].profile->trace, "trace-a.pb");
}

// One that is refused while another is under way does not end that.
TEST(CommandRelayTest, ARefusedProfileIsReportedAtOnce) {
  FakeRun run;
  run.script[1] = {.kind = CommandKind::kProfile, .id = "first", .profile_steps = 9};
  run.script[4] = {.kind = CommandKind::kProfile, .id = "second", .profile_steps = 1};
  run.Build();
  ASSERT_TRUE(run.RunTo(5).ok());
  run.profile_refused = base::FailedPrecondition("another is under way");
  ASSERT_TRUE(run.RunTo(6).ok());
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_EQ(run.done[0].id, "second");
  EXPECT_EQ(base::Message(run.done[0].error), "another is under way");
  run.profiled = StatusOr<ProfileRecord>(base::Internal("disk full"));
  ASSERT_TRUE(run.RunTo(7).ok());
  ASSERT_EQ(run.done.size(), 2U);
  EXPECT_EQ(run.done[1].id, "first");
  EXPECT_EQ(base::Message(run.done[1].error), "disk full");
}

TEST(CommandRelayTest, AtTheEndAProfileHasWhatItCameToAndALateOneNothing) {
  FakeRun run;
  run.script[1] = {.kind = CommandKind::kProfile, .id = "cut", .profile_steps = 9};
  run.script[5] = {.kind = CommandKind::kProfile, .id = "late", .profile_steps = 9};
  run.Build();
  ASSERT_TRUE(run.RunTo(5).ok());
  run.profiled = ProfileRecord{.trace = "trace-a.pb", .first_step = 3, .last_step = 5};
  run.relay().ReportAtEnd();
  ASSERT_EQ(run.done.size(), 2U);
  EXPECT_EQ(run.done[0].id, "cut");
  EXPECT_EQ(run.done[0].profile->last_step, 5);
  EXPECT_EQ(run.done[1].id, "late");
  EXPECT_FALSE(run.done[1].profile.has_value()) << "that is the other one's";
  EXPECT_NE(base::Message(run.done[1].error).find("the run ended after step 5"), std::string::npos);
}

Command AskFor(const std::string& prompt) {
  return {.kind = CommandKind::kDecode, .id = prompt, .texts = TextRequest{.prompts = {prompt}}};
}

// Texts are those of the step that is told with them, and are there when the command has acted.
TEST(CommandRelayTest, TextsAreWrittenBetweenTwoSteps) {
  FakeRun run;
  run.script[2] = AskFor("a");
  run.script[5] = AskFor("b");
  run.Build();
  ASSERT_TRUE(run.RunTo(4).ok());
  EXPECT_EQ(run.calls, (Calls{"3: write behind a"}));
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_EQ(run.done[0].id, "a");
  EXPECT_EQ(run.done[0].carrier_step, 2);
  EXPECT_EQ(run.done[0].step, 3);
  EXPECT_TRUE(run.done[0].error.ok());
  ASSERT_EQ(run.done[0].texts.size(), 1U);
  EXPECT_EQ(run.done[0].texts[0].text, "behind a");
  run.decode_refused = base::InvalidArgument("too long");
  ASSERT_TRUE(run.RunTo(8).ok());
  ASSERT_EQ(run.done.size(), 2U);
  EXPECT_EQ(base::Message(run.done[1].error), "too long");
  EXPECT_TRUE(run.done[1].texts.empty());
}

TEST(CommandRelayTest, OtherRanksHaveNothingToAskFor) {
  FakeRun run(/*is_rank_0=*/false);
  run.from_rank_0[1] = {.decode = true};
  run.Build();
  ASSERT_TRUE(run.RunTo(4).ok());
  EXPECT_EQ(run.calls, (Calls{"2: write"}));
  EXPECT_TRUE(run.done.empty());
}

// No rank is asked to compute: all of them know that they are held.
TEST(CommandRelayTest, HeldRanksWriteNothing) {
  FakeRun run;
  run.script[1] = {.kind = CommandKind::kHold, .id = "h"};
  run.script[4] = AskFor("a");
  run.script[6] = {.kind = CommandKind::kResume, .id = "r"};
  run.Build();
  ASSERT_TRUE(run.RunTo(5).ok());
  ASSERT_EQ(run.done.size(), 3U);
  EXPECT_EQ(run.done[1].id, "a");
  EXPECT_NE(base::Message(run.done[1].error).find("the ranks are held"), std::string::npos);
  for (const std::string& call : run.calls) EXPECT_EQ(call.find("write"), std::string::npos);
}

// Nor do ranks whose run ends with a save that was due with the same step.
TEST(CommandRelayTest, BehindASaveThatEndsTheRunNothingIsWritten) {
  FakeRun run;
  run.script[1] = AskFor("a");
  run.script[4] = AskFor("b");
  run.Build();
  ASSERT_TRUE(run.RunTo(3).ok());
  run.save_due = true;
  run.save_ends_run = base::Internal("disk full");
  EXPECT_EQ(run.RunTo(9).status(), run.save_ends_run);
  EXPECT_EQ(run.calls, (Calls{"2: write behind a", "5: save"}));
  ASSERT_EQ(run.done.size(), 2U);
  EXPECT_EQ(base::Message(run.done[1].error), "the run ends: disk full");
  EXPECT_TRUE(run.done[1].texts.empty()) << "those are the other one's";
}

TEST(CommandRelayTest, AtTheEndNothingIsWritten) {
  FakeRun run;
  run.script[5] = AskFor("late");
  run.Build();
  ASSERT_TRUE(run.RunTo(5).ok());
  run.relay().ReportAtEnd();
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_NE(base::Message(run.done[0].error).find("the run ended after step 5"), std::string::npos);
  EXPECT_TRUE(run.calls.empty());
}

}  // namespace
}  // namespace mt::train
