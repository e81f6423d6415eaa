// What fails on one rank alone while a run is set up ends all ranks, with that rank's error: none
// trains on, none waits for a rank that is gone.
#include <chrono>
#include <stdexcept>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

class SetUpVerdictTest : public TrainTest {
 protected:
  // Two stages: each rank reads its own shard alone (a tied table would be in both).
  SetUpVerdictTest() {
    layout_ = {"parallel.pipeline=2", "model.tie_embeddings=false"};
    // Where a rank waits for one that is gone.
    layout_.emplace_back("resilience.timeouts.load=10s");
  }

  void SaveStep5() { ExpectClean(Run({}, {{4, {CommandKind::kStopWithSave, ""}}}), 5); }
  std::string Shard(int rank) const {
    return dir_.path() + "/checkpoints/tiny/step-00000005-e0001/rank-0000" + std::to_string(rank) +
           ".safetensors";
  }

  // `culprit` has the error itself; the others have it with the rank's name, and as the network's
  // fault, so that a summary finds the culprit.
  static void ExpectAllEnd(const std::vector<RankOutcome>& outcomes, int culprit,
                           absl::StatusCode code, failure::Cause cause, const std::string& part) {
    ASSERT_EQ(outcomes.size(), 2U);
    for (int rank = 0; rank < 2; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
      const Status& status = outcome.result.status;
      EXPECT_FALSE(outcome.created);
      EXPECT_TRUE(outcome.seen.steps.empty());
      EXPECT_TRUE(outcome.seen.infos.empty());
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_NE(base::Message(status).find(part), std::string::npos) << status;
      const bool named = base::Message(status).starts_with("rank " + std::to_string(culprit) + ":");
      EXPECT_EQ(named, rank != culprit) << status;
      EXPECT_EQ(failure::CauseOf(status), rank == culprit ? cause : failure::Cause::kNetwork)
          << status;
    }
  }
};

// Whoever finds the damage, rank 0 tells of it: it has looked for an intact one before that.
TEST_F(SetUpVerdictTest, AShardThatOneRankReadsIsDamaged) {
  SaveStep5();
  for (const int culprit : {0, 1}) {
    const std::string whole = base::ReadFile(Shard(culprit)).value();
    std::string damaged = whole;
    damaged[damaged.size() - 5] = static_cast<char>(damaged[damaged.size() - 5] ^ 1);
    ASSERT_TRUE(base::WriteFileAtomic(Shard(culprit), damaged).ok());
    ExpectAllEnd(Run({}), /*culprit=*/0, absl::StatusCode::kDataLoss, failure::Cause::kStorage,
                 Shard(culprit));
    ASSERT_TRUE(base::WriteFileAtomic(Shard(culprit), whole).ok());
  }
  // It was nothing else: with the shard as it was the run goes on.
  const auto resumed = Run({});
  ExpectClean(resumed, 20);
  EXPECT_EQ(resumed[0].seen.steps.front().step(), 6);
}

TEST_F(SetUpVerdictTest, AShardThatOneRankReadsIsCutShort) {
  SaveStep5();
  const std::string whole = base::ReadFile(Shard(1)).value();
  ASSERT_TRUE(base::WriteFileAtomic(Shard(1), whole.substr(0, whole.size() / 2)).ok());
  ExpectAllEnd(Run({}), 0, absl::StatusCode::kDataLoss, failure::Cause::kStorage, Shard(1));
}

TEST_F(SetUpVerdictTest, OneRankHasNoData) {
  for (const int culprit : {0, 1}) {
    adjust_ = [&](int rank, TrainArgs* args) {
      if (rank != culprit) return;
      args->data_root = dir_.path() + "/elsewhere";
      args->cache_root = "";
    };
    ExpectAllEnd(Run({}), culprit, absl::StatusCode::kFailedPrecondition,
                 failure::Cause::kUserError, "elsewhere");
  }
}

// As the records beside the data of two nodes may tell two tokenizers.
TEST_F(SetUpVerdictTest, RanksOfTwoVocabulariesDoNotBegin) {
  megatrain::v1::JobSpec other;
  adjust_ = [&](int rank, TrainArgs* args) {
    if (rank != 1) return;
    other = *args->job;
    other.mutable_model()->set_vocab_size(args->job->model().vocab_size() + 1);
    args->job = &other;
  };
  for (const RankOutcome& outcome : Run({})) {
    EXPECT_FALSE(outcome.created);
    EXPECT_TRUE(absl::IsFailedPrecondition(outcome.result.status)) << outcome.result.status;
    EXPECT_NE(base::Message(outcome.result.status).find("rank 1 has a vocabulary of"),
              std::string::npos);
  }
}

// Throws as a rank begins to load.
struct Throwing final : public TrainObserver {
  void OnProgress(int64_t) override { throw std::runtime_error("out of order"); }
};

TEST_F(SetUpVerdictTest, AnExceptionWhileOneRankLoadsEndsTheOtherInItsNextCall) {
  SaveStep5();
  Throwing throwing;
  adjust_ = [&](int rank, TrainArgs* args) {
    if (rank == 1) args->observer = &throwing;
  };
  const auto outcomes = Run({});
  EXPECT_EQ(failure::CauseOf(outcomes[1].result.status), failure::Cause::kInternal);
  EXPECT_EQ(base::Message(outcomes[1].result.status), "out of order");
  EXPECT_EQ(outcomes[0].result.status.code(), absl::StatusCode::kUnavailable)
      << outcomes[0].result.status;
  EXPECT_FALSE(outcomes[0].created);
}

// Whether its rank was still in its groups when the failure was told.
struct Told final : public TrainObserver {
  void OnFailed(const Status& why, bool is_alone) override {
    status = why;
    alone = is_alone;
    was_in_groups = groups->status().ok();
    ++times;
  }
  parallel::RankGroups* groups = nullptr;
  Status status;
  bool alone = false;
  bool was_in_groups = false;
  int times = 0;
};

// Ending groups and destroying the run may wait for a device for ever: the failure is told first.
TEST_F(SetUpVerdictTest, ARankThatThrowsTellsItBeforeItLeavesItsGroups) {
  Told told;
  adjust_ = [&](int rank, TrainArgs* args) {
    if (rank != 1) return;
    told.groups = args->groups;
    args->observer = &told;
    args->after_step = [](int64_t step, const params::ParamStore&) {
      if (step == 3) throw kernels::DeviceError("an uncorrectable error");
    };
  };
  const auto outcomes = Run({});
  EXPECT_EQ(told.times, 1);
  EXPECT_TRUE(told.alone);
  EXPECT_TRUE(told.was_in_groups);
  EXPECT_EQ(told.status, outcomes[1].result.status);
  EXPECT_EQ(failure::CauseOf(told.status), failure::Cause::kHardware);
  EXPECT_NE(base::Message(told.status).find("in step 3"), std::string::npos) << told.status;
  // Its peer is told by the broken group, and leaves by itself too.
  ASSERT_EQ(outcomes[0].seen.failures.size(), 1U);
  EXPECT_EQ(outcomes[0].seen.failures[0].first, outcomes[0].result.status);
  EXPECT_TRUE(outcomes[0].seen.failures[0].second);
}

TEST_F(SetUpVerdictTest, AVerdictOfAllRanksIsToldAsSuch) {
  SaveStep5();
  const std::string whole = base::ReadFile(Shard(1)).value();
  ASSERT_TRUE(base::WriteFileAtomic(Shard(1), whole.substr(0, whole.size() / 2)).ok());
  for (const RankOutcome& outcome : Run({})) {
    EXPECT_FALSE(outcome.created);
    ASSERT_EQ(outcome.seen.failures.size(), 1U) << outcome.result.status;
    EXPECT_EQ(outcome.seen.failures[0].first, outcome.result.status);
    EXPECT_FALSE(outcome.seen.failures[0].second);
  }
}

}  // namespace
}  // namespace mt::train
