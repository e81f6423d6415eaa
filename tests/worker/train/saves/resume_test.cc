// A run that stops and goes on is the run that never stopped, to the bit; what may not change is
// refused with both values; failed saves follow the policy.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/rpc/reason.h"
#include "tests/worker/train/train_rig.h"
#include "tests/worker/tuning/fake_tuning.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/tuning/tuning.h"

namespace mt::train {
namespace {

class ResumeTest : public TrainTest {
 protected:
  // Of the ranks of a run whose backends choose by timing.
  std::vector<std::unique_ptr<tuning::FakeTuning>> tables_;
  std::vector<std::unique_ptr<tuning::TunedBackend>> tuned_;
};

constexpr char kHundred[] = "training.train_iters=100";
constexpr char kTwoReplicas[] = "parallel.data=2";
constexpr char kSingle[] = "training.precision=fp32";

TEST_F(ResumeTest, HundredStepsStraightAndFiftyPlusFiftyAreBitEqual) {
  const auto straight = Run({kHundred, kTwoReplicas, kSingle, "checkpoint.directory=none"})[0].seen;
  ASSERT_EQ(straight.steps.size(), 100U);

  // The bits of step 49 act before step 51.
  const std::vector<std::string> job = {kHundred, kTwoReplicas, kSingle};
  const auto first = Run(job, {{49, {CommandKind::kStopWithSave, "stop"}}});
  for (const RankOutcome& rank : first) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    EXPECT_EQ(rank.result.last_step, 50);
    EXPECT_FALSE(rank.result.completed);
  }
  ASSERT_EQ(first[0].seen.saves.size(), 1U);
  EXPECT_EQ(first[0].seen.saves[0].step, 50);
  EXPECT_EQ(first[0].seen.saves[0].consumed_samples, 400);
  EXPECT_GT(first[0].seen.saves[0].bytes, 0);
  EXPECT_EQ(first[0].seen.infos[0].resumed_from_step, 0);
  EXPECT_EQ(first[0].seen.infos[0].epoch, 1);

  // Nothing of the first run is left but its files.
  const auto second = Run(job);
  ASSERT_TRUE(second[0].result.status.ok()) << second[0].result.status;
  EXPECT_TRUE(second[0].result.completed);
  EXPECT_EQ(second[0].seen.infos[0].resumed_from_step, 50);
  EXPECT_EQ(second[0].seen.infos[0].epoch, 2);
  std::vector<StepRecord> joined = first[0].seen.steps;
  joined.insert(joined.end(), second[0].seen.steps.begin(), second[0].seen.steps.end());
  ExpectEqualCurve(joined, straight.steps);
}

TEST_F(ResumeTest, AnotherNumberOfReplicasGoesOnWithinRounding) {
  const auto straight = Run({"checkpoint.directory=none"})[0].seen;
  Run({kTwoReplicas}, {{9, {CommandKind::kStopWithSave, ""}}});
  const auto rest = Run({"parallel.data=4"})[0].seen;
  ASSERT_EQ(rest.steps.size(), 10U);
  ExpectSameCurve(rest.steps, {straight.steps.begin() + 10, straight.steps.end()}, 1e-12, 1e-12);
}

TEST_F(ResumeTest, WhatMayNotChangeIsRefusedWithBothValues) {
  Run({}, {{4, {CommandKind::kStopWithSave, ""}}});
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"training.train_iters=30", {"train_iters", "20", "30"}},
      {"training.seed=77", {"seed", "1234", "77"}},
      {"model.layers=3", {"layers", "2", "3"}},
      {"training.global_batch_size=4", {"global_batch_size", "8", "4"}},
      {"data.seed=5", {"seed", "5"}}};
  for (const auto& [override, parts] : cases) {
    const RankOutcome refused = Run({override})[0];
    EXPECT_FALSE(refused.created) << override;
    EXPECT_EQ(refused.result.status.code(), absl::StatusCode::kFailedPrecondition) << override;
    EXPECT_EQ(failure::CauseOf(refused.result.status), failure::Cause::kUserError);
    const std::string message = base::Message(refused.result.status);
    for (const char* part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
    }
  }
  // A changed data set under the same name.
  WriteTokens(dir_.path() + "/data/text", 210);
  const RankOutcome changed = Run({})[0];
  EXPECT_EQ(changed.result.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(changed.created);
}

// A directory of copies is pruned by the run whose copies they are.
TEST_F(ResumeTest, ADirectoryOfCopiesIsNoPlaceToSaveTo) {
  ExpectClean(Run({"checkpoint.second=copies", "checkpoint.every_iters=20"}), 20);
  const std::string copies = dir_.path() + "/checkpoints/copies";
  ASSERT_EQ(OnDisk("copies").size(), 1U);
  const std::string folder = checkpoint::FolderName(OnDisk("copies").front());
  const Status status = Run({"checkpoint.directory=copies"})[0].result.status;
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const std::string& part :
       {"checkpoint.directory: " + copies + " holds the copies of " + copies + "/../tiny",
        std::string("use another directory"), std::string("checkpoint.load: copies/step-...")})
    EXPECT_NE(base::Message(status).find(part), std::string::npos) << status;
  EXPECT_FALSE(base::Exists(copies + "/FENCE"));
  const auto elsewhere =
      Run({"checkpoint.directory=elsewhere", "checkpoint.load=copies/" + folder});
  ASSERT_TRUE(elsewhere[0].result.status.ok()) << elsewhere[0].result.status;
  EXPECT_EQ(elsewhere[0].seen.infos[0].resumed_from_step, 20);
}

TEST_F(ResumeTest, NeverColdOverItsOwnCheckpointsUnlessFresh) {
  Run({"checkpoint.every_iters=5"}, {{9, {CommandKind::kStopWithoutSave, ""}}});
  EXPECT_EQ(OnDisk(), (std::vector<checkpoint::CheckpointId>{{5, 1}, {10, 1}}));
  const Observed again = Run({})[0].seen;
  EXPECT_EQ(again.infos[0].resumed_from_step, 10);
  EXPECT_EQ(again.steps.front().step(), 11);
  const Observed older = Run({"checkpoint.load=5"})[0].seen;
  EXPECT_EQ(older.infos[0].resumed_from_step, 5);
  const Observed elsewhere = Run({"checkpoint.load=tiny", "checkpoint.directory=branch"})[0].seen;
  EXPECT_EQ(elsewhere.infos[0].resumed_from_step, 10);
  const Observed fresh = Run({"checkpoint.fresh=true", "checkpoint.every_iters=5"})[0].seen;
  EXPECT_EQ(fresh.infos[0].resumed_from_step, 0);
  EXPECT_EQ(fresh.steps.front().step(), 1);
  EXPECT_EQ(fresh.infos[0].epoch, 4) << "above every run in the directory";
  const RankOutcome missing = Run({"checkpoint.load=7"})[0];
  EXPECT_EQ(missing.result.status.code(), absl::StatusCode::kNotFound);
}

// What was chosen by timing is part of a checkpoint: a run that goes on takes the same choices, on
// every rank, though its disk has no cache any more.
TEST_F(ResumeTest, TimedChoicesGoOnWithTheRun) {
  const auto run = [this](const std::string& name, const std::string& identity) {
    tables_.clear();
    tuned_.clear();
    for (int rank = 0; rank < 2; ++rank) {
      tables_.push_back(
          std::make_unique<tuning::FakeTuning>(name + std::to_string(rank), identity));
      tables_.back()->planned = {"body", rank == 0 ? "first" : "last"};
    }
    tuned_.resize(2);
    adjust_ = [this](int rank, TrainArgs* args) {
      const auto r = static_cast<size_t>(rank);
      tuned_[r] = std::make_unique<tuning::TunedBackend>(args->backend, tables_[r].get());
      args->backend = tuned_[r].get();
    };
    std::filesystem::remove_all(dir_.path() + "/cache/tuning");
    const auto outcomes = Run({kTwoReplicas}, {{3, {CommandKind::kStopWithSave, ""}}});
    for (const RankOutcome& rank : outcomes) EXPECT_TRUE(rank.result.status.ok());
  };
  const auto stored = [this](const checkpoint::CheckpointId& id) {
    const auto manifest = checkpoint::ReadManifest(dir_.path() + "/checkpoints/tiny", id).value();
    return tuning::ParseTuningTables(manifest.facts.at(tuning::kTuningFact)).value();
  };
  using Choices = std::map<std::string, std::string>;
  const Choices chosen = {{"body", "a0 1"}, {"first", "a0 2"}, {"last", "a1 1"}};
  run("a", "lib 1");
  for (const auto& table : tables_) EXPECT_EQ(table->entries, chosen);
  EXPECT_EQ(stored({4, 1}), (tuning::TuningTables{{"lib 1", chosen}}));
  run("b", "lib 1");
  for (const auto& table : tables_) {
    EXPECT_TRUE(table->timed.empty());
    EXPECT_EQ(table->entries, chosen);
  }
  EXPECT_EQ(stored({8, 2}), (tuning::TuningTables{{"lib 1", chosen}}));
  run("c", "lib 2");
  const Choices anew = {{"body", "c0 1"}, {"first", "c0 2"}, {"last", "c1 1"}};
  EXPECT_EQ(tables_[1]->entries, anew);
  EXPECT_EQ(stored({12, 3}), (tuning::TuningTables{{"lib 1", chosen}, {"lib 2", anew}}));
}

TEST_F(ResumeTest, PlacementsOfAJobFollowEachOther) {
  const auto place = [this](const std::string& uid, int64_t epoch,
                            std::vector<std::string> ended = {}) {
    adjust_ = [=](int, TrainArgs* args) {
      args->job_uid = uid;
      args->epoch = epoch;
      args->ended_job_uids = ended;
    };
    return Run({kTwoReplicas, "training.exit_at_iter=20"}, {{3, {CommandKind::kStopWithSave, ""}}});
  };
  const auto first = place("job-a", 3);
  EXPECT_EQ(first[0].result.last_step, 4);
  EXPECT_EQ(first[0].seen.infos[0].epoch, 1) << "the directory's";
  EXPECT_EQ(first[0].seen.steps[0].epoch(), 3) << "the job's";
  for (const int64_t epoch : {2, 3}) {
    for (const RankOutcome& stale : place("job-a", epoch)) {
      EXPECT_EQ(stale.result.status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_FALSE(stale.created);
    }
  }
  const auto second = place("job-a", 7);
  EXPECT_EQ(second[0].seen.infos[0].resumed_from_step, 4);
  EXPECT_EQ(second[0].seen.infos[0].epoch, 2);
  EXPECT_EQ(second[0].seen.saves.back().epoch, 2);
  const RankOutcome other = place("job-b", 9)[0];
  EXPECT_EQ(other.result.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(base::Message(other.result.status).find("job job-a (epoch 7)"), std::string::npos);
  const auto heir = place("job-b", 1, {"job-a"});
  EXPECT_EQ(heir[0].seen.infos[0].resumed_from_step, 8);
  EXPECT_EQ(heir[0].seen.infos[0].epoch, 3);
  const auto manifest = checkpoint::ReadManifest(dir_.path() + "/checkpoints/tiny", {12, 3});
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->job_uid, "job-b");
  EXPECT_EQ(manifest->job_epoch, 1);
  EXPECT_EQ(manifest->parent_step, 8);
  EXPECT_EQ(manifest->parent_epoch, 2);
}

// What a job's file names is where its run begins. An epoch that ends behind a save, which nobody
// has told of, is followed by one that goes on from there, with the same file.
TEST_F(ResumeTest, WhatAJobBeginsWithIsForItsFirstEpoch) {
  const auto place = [this](const std::string& uid, int64_t epoch,
                            std::vector<std::string> overrides, int64_t stop) {
    adjust_ = [=](int, TrainArgs* args) {
      args->job_uid = uid;
      args->epoch = epoch;
      args->ended_job_uids = {"source"};
    };
    overrides.insert(overrides.end(), {"checkpoint.every_iters=4", kHundred});
    const RankOutcome rank = Run(overrides, {{stop, {CommandKind::kStopWithoutSave, ""}}})[0];
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    return rank.seen.infos.empty() ? int64_t{-1} : rank.seen.infos[0].resumed_from_step;
  };
  EXPECT_EQ(place("source", 1, {}, 9), 0);
  const std::vector<std::string> load = {"checkpoint.load=tiny", "checkpoint.directory=own"};
  EXPECT_EQ(place("load", 1, load, 5), 8);
  EXPECT_EQ(place("load", 2, load, 5), 12);
  EXPECT_EQ(place("load", 3, load, 5), 16);
  // From step 0 over the checkpoints of another run.
  const std::vector<std::string> fresh = {"checkpoint.fresh=true"};
  EXPECT_EQ(place("fresh", 1, fresh, 5), 0);
  EXPECT_EQ(place("fresh", 2, fresh, 5), 4);
  EXPECT_EQ(place("fresh", 3, fresh, 5), 8);
}

// Another placement takes the directory over while this one trains: the next save ends it, strict
// or not, on every rank, and writes nothing.
TEST_F(ResumeTest, AFencedRunStopsAtItsNextSave) {
  adjust_ = [this](int rank, TrainArgs* args) {
    args->job_uid = "job";
    args->epoch = 1;
    if (rank != 0) return;
    args->end_of_step = [this](int64_t step, engine::StepVector*) {
      if (step != 8) return;
      const auto raised = checkpoint::RaiseFence(
          {.directory = dir_.path() + "/checkpoints/tiny", .job_uid = "job", .epoch = 2});
      EXPECT_TRUE(raised.ok()) << raised.status();
    };
  };
  const auto outcomes =
      Run({kTwoReplicas, "checkpoint.every_iters=3"}, {{7, {CommandKind::kCheckpointNow, "c"}}});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_EQ(rank.result.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(rank.result.message.find("fenced"), std::string::npos) << rank.result.message;
    EXPECT_EQ(rank.result.last_step, 8);
  }
  EXPECT_EQ(OnDisk(), (std::vector<checkpoint::CheckpointId>{{3, 1}, {6, 1}}));
  ASSERT_EQ(outcomes[0].seen.commands_done.size(), 1U);
  EXPECT_NE(base::Message(outcomes[0].seen.commands_done[0].error).find("epoch 2"),
            std::string::npos);
}

TEST_F(ResumeTest, KeepsTheNewestCheckpoints) {
  const Observed run =
      Run({kTwoReplicas, "checkpoint.every_iters=4", "checkpoint.keep_last=2"})[0].seen;
  std::vector<int64_t> saved;
  for (const CheckpointRecord& save : run.saves) saved.push_back(save.step);
  EXPECT_EQ(saved, (std::vector<int64_t>{4, 8, 12, 16, 20}));
  EXPECT_EQ(OnDisk(), (std::vector<checkpoint::CheckpointId>{{16, 1}, {20, 1}}));
  ASSERT_EQ(run.deleted.size(), 3U) << "and says what is gone";
  EXPECT_EQ(run.deleted[0], run.saves[0].path);
  EXPECT_EQ(run.deleted[2], run.saves[2].path);
}

// Every second save is evaluated; the loss falls, so the best of the old ones is the last
// evaluated.
TEST_F(ResumeTest, KeepsTheBestAndEveryEighthBesides) {
  const Observed run = Run({kTwoReplicas, "checkpoint.every_iters=2", "checkpoint.keep_last=2",
                            "checkpoint.keep_every=8", "checkpoint.keep_best=2",
                            "training.eval.every_iters=4", "training.eval.iters=1"})[0]
                           .seen;
  std::map<int64_t, double> losses;
  for (const EvalRecord& eval : run.evals) {
    if (!eval.final) losses[eval.step] = eval.loss;
  }
  ASSERT_EQ(losses.size(), 5U) << "4, 8, 12, 16, 20";
  const double last_loss = losses[20];
  losses.erase(20);  // known after the last choice
  std::vector<std::pair<double, int64_t>> judged;
  for (const auto& [step, loss] : losses) judged.emplace_back(loss, -step);
  std::sort(judged.begin(), judged.end());
  std::set<int64_t> kept = {8, 16, 18, 20, -judged[0].second, -judged[1].second};
  std::vector<int64_t> steps;
  for (const auto& id : OnDisk()) steps.push_back(id.step);
  EXPECT_EQ(steps, std::vector<int64_t>(kept.begin(), kept.end()));
  const std::string folder = run.saves.back().path;
  const auto last = checkpoint::ReadEvaluation(folder);
  ASSERT_TRUE(last.ok() && *last) << "the evaluation after the last save: " << last.status();
  EXPECT_EQ((*last)->loss, last_loss) << "not that of the whole split";
  EXPECT_EQ((*last)->step, 20);
  EXPECT_TRUE(run.evals.back().final);
}

TEST_F(ResumeTest, ACompletedRunHasNothingLeftToTrain) {
  Run({"checkpoint.at_end=true"});
  const RankOutcome again = Run({"checkpoint.at_end=true"})[0];
  EXPECT_TRUE(again.result.status.ok()) << again.result.status;
  EXPECT_TRUE(again.result.completed);
  EXPECT_EQ(again.result.last_step, 20);
  EXPECT_TRUE(again.seen.steps.empty());
  EXPECT_TRUE(again.seen.saves.empty());
}

TEST_F(ResumeTest, SavesByTheClock) {
  base::ManualClock clock;
  // Rank 0's clock moves 4 s with every step; a save is asked for after 10 s.
  class Ticking final : public CommandSource {
   public:
    explicit Ticking(base::ManualClock* clock) : clock_(clock) {}
    std::optional<Command> Poll() override {
      clock_->Advance(std::chrono::seconds(4));
      return std::nullopt;
    }

   private:
    base::ManualClock* clock_;
  } ticking(&clock);
  const auto outcomes = RunJob(TinyJob({kTwoReplicas, "checkpoint.every=10s"}),
                               {.root = dir_.path(), .commands = &ticking, .clock = &clock});
  std::vector<int64_t> saved;
  for (const CheckpointRecord& save : outcomes[0].seen.saves) saved.push_back(save.step);
  // 12 s have passed when step 3 is built; its bits act before step 5. From there 12 s more are
  // over with step 7, and so on.
  EXPECT_EQ(saved, (std::vector<int64_t>{4, 8, 12, 16}));
}

// A disk that is full from the nth save on.
std::function<void(int, TrainArgs*)> FullDiskAfter(int saves, int on_rank) {
  return [=](int rank, TrainArgs* args) {
    if (rank != on_rank) return;
    auto count = std::make_shared<int>(0);
    args->checkpoint_failpoint = [=](std::string_view point) -> Status {
      if (point != "shard" || ++*count <= saves) return OkStatus();
      return base::ErrnoError(ENOSPC, "write shard");
    };
  };
}

TEST_F(ResumeTest, FailedPeriodicSaveIsToldAndTrainingGoesOn) {
  adjust_ = FullDiskAfter(1, 1);
  const auto outcomes = Run({kTwoReplicas, "checkpoint.every_iters=5"});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    EXPECT_EQ(rank.result.last_step, 20);
    EXPECT_TRUE(rank.result.final_save_failed) << "step 20's was the last one";
  }
  ASSERT_EQ(outcomes[0].seen.failed_saves.size(), 3U);
  EXPECT_EQ(outcomes[0].seen.failed_saves[0].first, 10);
  EXPECT_EQ(outcomes[0].seen.failed_saves[0].second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(OnDisk(), (std::vector<checkpoint::CheckpointId>{{5, 1}}));
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path() + "/checkpoints/tiny")) {
    EXPECT_FALSE(entry.path().filename().string().ends_with(".tmp")) << entry.path();
  }
}

TEST_F(ResumeTest, FailedSaveUnderStrictFailsTheJob) {
  adjust_ = FullDiskAfter(0, 1);
  for (const RankOutcome& rank :
       Run({kTwoReplicas, "checkpoint.every_iters=5", "checkpoint.strict=true"})) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kStorage);
    EXPECT_EQ(rpc::ReasonOf(rank.result.status), "SAVE_FAILED");
    EXPECT_EQ(rank.result.last_step, 5);
    EXPECT_FALSE(rank.result.completed);
  }
  for (const RankOutcome& rank :
       Run({kTwoReplicas, "checkpoint.at_end=true", "checkpoint.strict=true"})) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kStorage);
    EXPECT_EQ(rpc::ReasonOf(rank.result.status), "SAVE_FAILED");
    EXPECT_TRUE(rank.result.final_save_failed);
    EXPECT_EQ(rank.result.last_step, 20);
  }
}

TEST_F(ResumeTest, FailedLastSaveIsAResultNotAFailure) {
  adjust_ = FullDiskAfter(0, 0);
  for (const RankOutcome& rank : Run({kTwoReplicas, "checkpoint.at_end=true"})) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    EXPECT_TRUE(rank.result.completed);
    EXPECT_TRUE(rank.result.final_save_failed);
    EXPECT_NE(rank.result.message.find("could not be saved"), std::string::npos);
  }
}

TEST_F(ResumeTest, DamagedCheckpointIsNotLoaded) {
  Run({}, {{4, {CommandKind::kStopWithSave, ""}}});
  const std::string file =
      dir_.path() + "/checkpoints/tiny/step-00000005-e0001/rank-00000.safetensors";
  std::string bytes = base::ReadFile(file).value();
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(file, bytes).ok());
  const RankOutcome damaged = Run({})[0];
  EXPECT_EQ(damaged.result.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(failure::CauseOf(damaged.result.status), failure::Cause::kStorage);
}

// The same index over other tokens.
TEST_F(ResumeTest, OtherTokensBehindTheSameIndexAreRefused) {
  Run({}, {{9, {CommandKind::kStopWithSave, ""}}});
  const std::string bin = base::JoinPath(dir_.path(), "data/text.bin");
  std::string bytes = *base::ReadFile(bin);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(bin, bytes).ok());
  const auto refused = Run({});
  EXPECT_EQ(refused[0].result.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(base::Message(refused[0].result.status).find("digest of a sample of the .bin"),
            std::string::npos)
      << refused[0].result.status;
}

}  // namespace
}  // namespace mt::train
