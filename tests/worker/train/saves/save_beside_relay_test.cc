// Saves that go on beside training, as commands see them: when they begin and end, and when what
// asked for them is reported.
#include <gtest/gtest.h>

#include "tests/worker/train/fake_run.h"

namespace mt::train {
namespace {

TEST(SaveBesideRelayTest, ACommandIsReportedWhenItsSaveHasEnded) {
  FakeRun run;
  run.beside = true;
  run.Build();
  run.script[3] = {.kind = CommandKind::kCheckpointNow, .id = "save"};
  run.script[5] = {.kind = CommandKind::kResume, .id = "other"};
  ASSERT_TRUE(run.RunTo(9).ok());
  EXPECT_EQ(run.calls, Calls{"4: begin a save"});
  ASSERT_EQ(run.done.size(), 1U) << "other commands wait for no save";
  EXPECT_EQ(run.done[0].id, "other");
  run.over = true;
  ASSERT_TRUE(run.RunTo(10).ok());
  EXPECT_TRUE(run.carried[10].save_over);
  ASSERT_TRUE(run.RunTo(11).ok());
  EXPECT_FALSE(run.carried[11].save_over) << "step 10's has not acted";
  EXPECT_EQ(run.done.size(), 1U);
  ASSERT_TRUE(run.RunTo(14).ok());
  EXPECT_EQ(run.calls, (Calls{"4: begin a save", "11: end the save"}));
  ASSERT_EQ(run.done.size(), 2U);
  EXPECT_EQ(run.done[1].id, "save");
  EXPECT_EQ(run.done[1].carrier_step, 3);
  EXPECT_EQ(run.done[1].step, 4) << "what is saved is the state after that step";
  for (int64_t step = 12; step <= 14; ++step) EXPECT_FALSE(run.carried[step].save_over);
}

TEST(SaveBesideRelayTest, HeldRanksTakeTheOutcomeInAnIdleReduction) {
  FakeRun run;
  run.beside = true;
  run.over = true;
  run.under_way = true;
  run.Build();
  run.script[1] = {.kind = CommandKind::kHold, .id = "hold"};
  run.script[4] = {.kind = CommandKind::kResume, .id = "resume"};
  ASSERT_TRUE(run.RunTo(3).ok());
  EXPECT_EQ(run.calls,
            (Calls{"2: end the save", "2: held", "2: idle", "2: idle", "2: resumed after 2 s"}));
}

TEST(SaveBesideRelayTest, OtherRanksEndItWhenRankZeroSaysSo) {
  FakeRun run(/*is_rank_0=*/false);
  run.beside = true;
  run.Build();
  run.over = true;
  ASSERT_TRUE(run.RunTo(4).ok());
  EXPECT_EQ(run.calls, Calls{}) << "its own end says nothing about the others";
  run.from_rank_0[5] = {.save_over = true};
  ASSERT_TRUE(run.RunTo(7).ok());
  EXPECT_EQ(run.calls, Calls{"6: end the save"});
}

TEST(SaveBesideRelayTest, ARequestedSaveIsToldFromOneThatIsDue) {
  FakeRun run;
  run.beside = true;
  run.save_due = true;
  run.Build();
  ASSERT_TRUE(run.RunTo(2).ok());
  run.save_due = false;
  run.script[3] = {.kind = CommandKind::kCheckpointNow, .id = "save"};
  ASSERT_TRUE(run.RunTo(6).ok());
  EXPECT_EQ(run.calls, (Calls{"2: begin a save if there is none", "4: begin a save"}));
}

TEST(SaveBesideRelayTest, AReleaseSavesAndWaits) {
  FakeRun run;
  run.beside = true;
  run.under_way = true;
  run.Build();
  run.script[1] = {.kind = CommandKind::kRelease, .id = "release"};
  const auto ending = run.RunTo(5);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(*ending, Ending::kStopWithSave);
  EXPECT_EQ(run.calls, Calls{"2: save"});
}

TEST(SaveBesideRelayTest, AFailureThatEndsTheRunEndsIt) {
  FakeRun run;
  run.beside = true;
  run.over = true;
  run.under_way = true;
  run.save_ends_run = base::FailedPrecondition("another run holds the directory");
  run.Build();
  EXPECT_EQ(run.RunTo(5).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SaveBesideRelayTest, ACommandWhoseSaveNeverBeganIsReportedAtTheEnd) {
  FakeRun run;
  run.beside = true;
  run.Build();
  run.script[1] = {.kind = CommandKind::kCheckpointNow, .id = "save"};
  ASSERT_TRUE(run.RunTo(4).ok());
  EXPECT_TRUE(run.done.empty());
  run.relay().ReportAtEnd();
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_FALSE(run.done[0].error.ok());
}

TEST(SaveBesideRelayTest, ACheckpointIsLabelledOnceItIsSaved) {
  FakeRun run;
  run.beside = true;
  run.Build();
  run.script[1] = {.kind = CommandKind::kCheckpointNow, .id = "save", .label = {.tag = "best"}};
  ASSERT_TRUE(run.RunTo(4).ok());
  EXPECT_EQ(run.calls, Calls{"2: begin a save"});
  run.over = true;
  ASSERT_TRUE(run.RunTo(8).ok());
  EXPECT_EQ(run.calls, (Calls{"2: begin a save", "6: end the save", "6: label step 2 best"}));
  ASSERT_EQ(run.done.size(), 1U);
  ASSERT_TRUE(run.done[0].checkpoint.has_value());
  EXPECT_EQ(run.done[0].checkpoint->label.tag, "best");
}

TEST(SaveBesideRelayTest, ALabelThatCannotBeWrittenIsAnErrorOfTheCommand) {
  FakeRun run;
  run.Build();
  run.label_fails = base::Internal("disk full");
  run.script[1] = {.kind = CommandKind::kCheckpointNow, .id = "save", .label = {.tag = "best"}};
  ASSERT_TRUE(run.RunTo(4).ok());
  ASSERT_EQ(run.done.size(), 1U);
  EXPECT_EQ(run.done[0].error.message(), "disk full");
  EXPECT_EQ(run.done[0].checkpoint->step, 2) << "it is saved all the same";
}

}  // namespace
}  // namespace mt::train
