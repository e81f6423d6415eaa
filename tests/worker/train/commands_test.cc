// Commands beside hold and stop: updates of a running job, checkpoints on demand with their result,
// the two conditions that end a run before its length.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::train {
namespace {

class CommandsTest : public TrainTest {
 protected:
  CommandsTest() { layout_ = {"parallel.data=2"}; }
  static std::vector<int64_t> StepsOf(const std::vector<EvalRecord>& evals) {
    std::vector<int64_t> steps;
    for (const EvalRecord& eval : evals) steps.push_back(eval.step);
    return steps;
  }
};

// The settings of this job as a command.
Command UpdateTo(const std::vector<std::string>& overrides, const std::string& id) {
  return {.kind = CommandKind::kUpdate, .id = id, .settings = SettingsOf(TinyJob(overrides))};
}

TEST_F(CommandsTest, AnUpdateActsAtOneBoundaryOnEveryRank) {
  const std::vector<std::string> before = {"checkpoint.every_iters=2", "training.log_every=1"};
  const std::vector<std::string> after = {"checkpoint.every_iters=5", "checkpoint.keep_last=4",
                                          "training.log_every=7", "training.eval.every_iters=4",
                                          "training.eval.iters=1"};
  const auto outcomes = Run(before, {{5, UpdateTo(after, "u")}});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.completed) << rank.result.status;
    ASSERT_EQ(rank.seen.settings.size(), 1U);
    EXPECT_EQ(rank.seen.settings[0], SettingsOf(TinyJob(after)));
  }
  const Observed& seen = outcomes[0].seen;
  // Every second step up to 6; the bits of step 5 act before step 7.
  std::vector<int64_t> saved;
  for (const CheckpointRecord& save : seen.saves) saved.push_back(save.step);
  EXPECT_EQ(saved, (std::vector<int64_t>{2, 4, 6, 10, 15, 20}));
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{6, 10, 15, 20}));
  EXPECT_EQ(StepsOf(seen.evals), (std::vector<int64_t>{8, 12, 16, 20}));
  ASSERT_EQ(seen.commands_done.size(), 1U);
  EXPECT_TRUE(seen.commands_done[0].error.ok());
  EXPECT_EQ(seen.commands_done[0].step, 6);
  // Evaluations are those of a job that had these settings from the start.
  std::vector<std::string> from_start = after;
  from_start.emplace_back("checkpoint.directory=other");
  const Observed straight = Run(from_start)[0].seen;
  for (const EvalRecord& eval : seen.evals) {
    const auto same = std::find_if(straight.evals.begin(), straight.evals.end(),
                                   [&](const EvalRecord& e) { return e.step == eval.step; });
    ASSERT_NE(same, straight.evals.end());
    EXPECT_EQ(same->loss, eval.loss) << eval.step;
  }
  ExpectEqualCurve(seen.steps, straight.steps);
  // Manifests say what the job is now.
  const auto manifest =
      checkpoint::ReadManifest(dir_.path() + "/checkpoints/tiny", {.step = 10, .epoch = 1});
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_NE(manifest->spec_json.find("\"every_iters\":5"), std::string::npos);
}

TEST_F(CommandsTest, AnUpdateReachesHeldRanks) {
  const auto outcomes =
      Run({"checkpoint.directory=none"}, {{3, {CommandKind::kHold, "h"}},
                                          {6, UpdateTo({"training.eval.every_iters=10"}, "u")},
                                          {7, UpdateTo({"training.log_every=3"}, "v")},
                                          {8, {CommandKind::kResume, "r"}}});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.completed);
    EXPECT_EQ(rank.seen.settings.size(), 2U);
  }
  EXPECT_TRUE(outcomes[0].seen.evals.empty()) << "the second update switched it off again";
}

TEST_F(CommandsTest, AnUpdateThatOneRankCannotFollowChangesNothing) {
  adjust_ = [this](int rank, TrainArgs* args) {
    if (rank != 1) return;
    args->cache_root = "";  // so that this rank opens its files anew
    args->end_of_step = [this](int64_t step, engine::StepVector*) {
      if (step != 4) return;
      std::filesystem::rename(dir_.path() + "/data/text.idx", dir_.path() + "/data/away.idx");
    };
  };
  const auto outcomes =
      Run({"checkpoint.directory=none"}, {{3, UpdateTo({"training.eval.every_iters=5"}, "u")}});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.completed) << rank.result.status;
    EXPECT_TRUE(rank.seen.settings.empty());
  }
  EXPECT_TRUE(outcomes[0].seen.evals.empty());
  const auto& done = outcomes[0].seen.commands_done;
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].error.code(), absl::StatusCode::kNotFound) << done[0].error;
  EXPECT_NE(base::Message(done[0].error).find("text.idx"), std::string::npos);
}

TEST_F(CommandsTest, ASaveByCommandOnAFullDiskIsAResult) {
  adjust_ = [](int rank, TrainArgs* args) {
    if (rank != 1) return;
    auto saves = std::make_shared<int>(0);
    args->checkpoint_failpoint = [saves](std::string_view point) -> Status {
      if (point != "shard" || ++*saves > 1) return OkStatus();
      return base::ErrnoError(ENOSPC, "write shard");
    };
  };
  const Commands scripted = {{3, {CommandKind::kCheckpointNow, "full"}},
                             {8, {CommandKind::kCheckpointNow, "room"}}};
  const auto outcomes = Run({}, scripted);
  for (const RankOutcome& rank : outcomes) EXPECT_TRUE(rank.result.completed);
  const Observed& seen = outcomes[0].seen;
  ASSERT_EQ(seen.commands_done.size(), 2U);
  EXPECT_EQ(seen.commands_done[0].error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(seen.commands_done[0].checkpoint.has_value());
  ASSERT_TRUE(seen.commands_done[1].checkpoint.has_value());
  EXPECT_EQ(seen.commands_done[1].checkpoint->step, 9);
  EXPECT_GT(seen.commands_done[1].checkpoint->stall_seconds, 0);
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{9}));
  ASSERT_EQ(seen.failed_saves.size(), 1U);
}

TEST_F(CommandsTest, ASaveByCommandOnAFullDiskEndsAStrictRun) {
  adjust_ = [](int, TrainArgs* args) {
    args->checkpoint_failpoint = [](std::string_view) { return base::ErrnoError(ENOSPC, "full"); };
  };
  const auto outcomes =
      Run({"checkpoint.strict=true"}, {{3, {CommandKind::kCheckpointNow, "now"}}});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kStorage);
    EXPECT_EQ(rank.result.last_step, 4);
  }
  ASSERT_EQ(outcomes[0].seen.commands_done.size(), 1U) << "told, though the run ends";
  EXPECT_FALSE(outcomes[0].seen.commands_done[0].error.ok());
}

TEST_F(CommandsTest, WithoutADirectoryThereIsNothingToSaveTo) {
  const auto outcomes =
      Run({"checkpoint.directory=none"}, {{3, {CommandKind::kCheckpointNow, "now"}}});
  EXPECT_TRUE(outcomes[0].result.completed);
  const auto& done = outcomes[0].seen.commands_done.at(0);
  EXPECT_EQ(done.error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(base::Message(done.error).find("checkpoint.directory"), std::string::npos);
}

TEST_F(CommandsTest, CommandsThatNoStepCarriesAreToldAtTheEnd) {
  // Step 5's bits stop after step 6; what follows was sent with step 6, or never.
  const auto outcomes = Run({}, {{5, {CommandKind::kStopWithoutSave, "stop"}},
                                 {6, {CommandKind::kUpdate, "late", RunSettings{}}},
                                 {7, {CommandKind::kCheckpointNow, "never"}}});
  EXPECT_EQ(outcomes[0].result.last_step, 6);
  const auto& done = outcomes[0].seen.commands_done;
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].id, "stop");
  EXPECT_EQ(done[1].carrier_step, 6);
  EXPECT_TRUE(done[1].error.ok());
  EXPECT_EQ(done[2].carrier_step, 0);
  EXPECT_NE(base::Message(done[2].error).find("before the save"), std::string::npos);
  // A checkpoint that did travel is part of the end.
  const auto saved = Run({}, {{5, {CommandKind::kStopWithoutSave, "stop"}},
                              {6, {CommandKind::kCheckpointNow, "save"}}});
  ASSERT_TRUE(saved[0].seen.commands_done.at(1).checkpoint.has_value());
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{6}));
}

TEST_F(CommandsTest, ExitAtIterStopsCleanlyWithACheckpoint) {
  const auto outcomes = Run({"training.exit_at_iter=7", "training.eval.every_iters=5"});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    EXPECT_FALSE(rank.result.completed);
    EXPECT_EQ(rank.result.last_step, 7);
    EXPECT_EQ(rank.result.exit_condition, "training.exit_at_iter 7");
  }
  EXPECT_EQ(outcomes[0].seen.steps.size(), 7U);
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{7}));
  EXPECT_EQ(StepsOf(outcomes[0].seen.evals), (std::vector<int64_t>{5})) << "no last one";
  // A run that goes on from there, or from behind it: not another SUCCEEDED without a step.
  for (const char* at : {"training.exit_at_iter=7", "training.exit_at_iter=3"}) {
    for (const RankOutcome& rank : Run({at})) {
      EXPECT_FALSE(rank.created);
      EXPECT_EQ(rank.result.status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(base::Message(rank.result.status),
                std::string(at).replace(21, 1, " ") +
                    " is done already: the run goes on from step 7 of 20; give a later one, leave "
                    "it out, or use training.exit_interval, which ends after each multiple");
    }
  }
  // Further on, with the same bits as if it had never stopped.
  const auto rest = Run({"training.exit_at_iter=20"});
  EXPECT_TRUE(rest[0].result.completed) << "the length of the run comes first";
  EXPECT_TRUE(rest[0].result.exit_condition.empty());
  const auto straight = Run({"checkpoint.directory=none"});
  ExpectEqualCurve(rest[0].seen.steps,
                   {straight[0].seen.steps.begin() + 7, straight[0].seen.steps.end()});
}

// The rank that saved the step was lost before it said so: the job is placed once more.
TEST_F(CommandsTest, AnotherPlacementOfTheJobEndsAtItsExit) {
  int64_t epoch = 0;
  const auto place = [&](const std::string& uid) {
    ++epoch;
    adjust_ = [uid, epoch](int, TrainArgs* args) {
      args->job_uid = uid;
      args->epoch = epoch;
    };
    return Run({"training.exit_at_iter=7"});
  };
  ExpectClean(place("job-a"), 7);
  const auto again = place("job-a");
  ExpectClean(again, 7);
  EXPECT_TRUE(again[0].seen.steps.empty());
  EXPECT_TRUE(again[0].seen.saves.empty()) << "it is on disk";
  EXPECT_EQ(again[0].result.exit_condition, "training.exit_at_iter 7");
}

// Megatron's --exit-interval: each submission trains up to the next multiple, the last to the end.
TEST_F(CommandsTest, ExitIntervalEndsAfterEachMultiple) {
  std::vector<StepRecord> steps;
  for (const int64_t last : {8, 16, 20}) {
    const auto outcomes = Run({"training.exit_interval=8"});
    ExpectClean(outcomes, last);
    EXPECT_EQ(outcomes[0].result.completed, last == 20);
    EXPECT_EQ(outcomes[0].result.exit_condition, last == 20 ? "" : "training.exit_interval 8");
    if (last < 20) {
      EXPECT_EQ(StepsOnDisk().back(), last);
    }
    steps.insert(steps.end(), outcomes[0].seen.steps.begin(), outcomes[0].seen.steps.end());
  }
  ExpectEqualCurve(steps, Run({"checkpoint.directory=none"})[0].seen.steps);
}

// Rank 0's clock moves 4 s with every poll; the others' clock is the same object.
class Ticking final : public CommandSource {
 public:
  Ticking(base::ManualClock* clock, Commands scripted)
      : clock_(clock), script_(std::move(scripted)) {}
  std::optional<Command> Poll() override {
    clock_->Advance(std::chrono::seconds(4));
    return script_.Poll();
  }

 private:
  base::ManualClock* clock_;
  Script script_;
};

TEST_F(CommandsTest, ExitAfterCountsTheClockOfThisPlacement) {
  const auto run = [this](Commands scripted) {
    base::ManualClock clock;
    Ticking ticking(&clock, std::move(scripted));
    return RunJob(TinyJob({"parallel.data=2", "training.exit_after=30s"}),
                  {.root = dir_.path(),
                   .commands = &ticking,
                   .clock = &clock,
                   .adjust = [](int, TrainArgs* args) {
                     args->idle_interval = std::chrono::milliseconds(0);
                   }});
  };
  const auto outcomes = run({});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    // 32 s have passed when step 8 is built; its bits act before step 10.
    EXPECT_EQ(rank.result.last_step, 9);
    EXPECT_FALSE(rank.result.completed);
    EXPECT_EQ(rank.result.exit_condition, "training.exit_after 30s");
    EXPECT_NE(rank.result.message.find("exit_after"), std::string::npos);
  }
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{9}));
  // The next placement counts anew; time that it is held counts, so that the slots come free.
  const auto held = run({{2, {CommandKind::kHold, "h"}}});
  EXPECT_EQ(held[0].result.last_step, 12);
  EXPECT_EQ(held[0].result.exit_condition, "training.exit_after 30s");
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{9, 12}));
}

}  // namespace
}  // namespace mt::train
