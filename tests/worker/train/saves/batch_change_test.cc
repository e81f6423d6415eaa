// A run that goes on with other batch sizes reads every sample that is left, once and in order, and
// its curve is that of an uninterrupted run whose batches change at that sample.
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/train/run_state.h"

namespace mt::train {
namespace {

constexpr char kNowhere[] = "checkpoint.directory=none";

class BatchChangeTest : public TrainTest {
 protected:
  // The records of a run of this job, which ends well.
  std::vector<StepRecord> Steps(const std::vector<std::string>& job, Commands scripted = {}) {
    const auto outcomes = Run(job, std::move(scripted));
    for (const RankOutcome& rank : outcomes)
      EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    last_ = outcomes[0];
    return outcomes[0].seen.steps;
  }
  checkpoint::Manifest ManifestOf(const checkpoint::CheckpointId& id) const {
    return checkpoint::ReadManifest(dir_.path() + "/checkpoints/tiny", id).value();
  }
  RankOutcome last_;
};

void Append(const std::vector<StepRecord>& more, std::vector<StepRecord>* steps) {
  steps->insert(steps->end(), more.begin(), more.end());
}

// The job's weights never move, so that a sample's loss (dropout included) is a number that only it
// has: a step's loss tells which samples it has read.
TEST_F(BatchChangeTest, ReadsEverySampleOnceAndInOrder) {
  const auto still = [](std::vector<std::string> job) {
    job.insert(job.end(), {"training.train_iters=null", "training.train_samples=162",
                           "optimizer.lr=0", "optimizer.min_lr=0", "optimizer.weight_decay=0"});
    return job;
  };
  std::vector<double> losses;
  for (const StepRecord& step :
       Steps(still({"training.micro_batch_size=1", "training.global_batch_size=1", kNowhere})))
    losses.push_back(step.loss());
  ASSERT_EQ(losses.size(), 162U);

  // 40 samples by 8, 30 by 6 with three replicas, then by 4 and from sample 120 on by 16.
  std::vector<StepRecord> steps = Steps(still({}), {{4, {CommandKind::kStopWithSave, ""}}});
  EXPECT_EQ(last_.seen.infos[0].total_steps, 20);
  Append(Steps(still({"training.global_batch_size=6", "parallel.data=3"}),
               {{4, {CommandKind::kStopWithSave, ""}}}),
         &steps);
  EXPECT_EQ(last_.seen.infos[0].resumed_from_step, 5);
  EXPECT_EQ(last_.seen.infos[0].total_steps, 5 + 120 / 6);
  EXPECT_EQ(ManifestOf({10, 2}).facts.at(kSizesFact), "0:8 40:6");
  const std::vector<std::string> ramp =
      still({"training.batch_ramp=0:2 320:4 1920:16", "training.global_batch_size=null"});
  Append(Steps(ramp, {{3, {CommandKind::kStopWithSave, ""}}}), &steps);
  EXPECT_EQ(last_.seen.infos[0].total_steps, 10 + 13 + 2);
  EXPECT_EQ(ManifestOf({14, 3}).facts.at(kSizesFact), "0:8 40:6 70:4 120:16");
  // The same job again goes on as it was.
  Append(Steps(ramp), &steps);
  EXPECT_TRUE(last_.result.completed);

  ASSERT_EQ(steps.size(), 25U);
  size_t next = 0;
  for (const StepRecord& step : steps) {
    const size_t batch = static_cast<size_t>(step.tokens() / 16);
    EXPECT_EQ(batch, step.step() <= 5 ? 8U : step.step() <= 10 ? 6U : step.step() <= 23 ? 4U : 16U);
    ASSERT_LE(next + batch, losses.size());
    const double mean = std::accumulate(losses.begin() + static_cast<int64_t>(next),
                                        losses.begin() + static_cast<int64_t>(next + batch), 0.0) /
                        static_cast<double>(batch);
    EXPECT_NEAR(step.loss(), mean, 1e-12 * mean) << "step " << step.step();
    next += batch;
    EXPECT_EQ(step.consumed_samples(), static_cast<int64_t>(next));
  }
  EXPECT_EQ(next, 154U) << "the run is one of the 160 samples of whole batches of 8";
}

// With weights that move, and batches of 16 that alone would not fill the length: learning rate,
// moments and loss are those of a ramp that changes there.
TEST_F(BatchChangeTest, TheCurveIsThatOfARampThatChangesAtThisSample) {
  const auto job = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"training.train_iters=null", "training.train_samples=168",
                               "optimizer.warmup=64", "optimizer.decay_over=90%"});
    return more;
  };
  const auto straight =
      Steps(job({"training.batch_ramp=0:8 896:16", "training.global_batch_size=null", kNowhere}));
  ASSERT_EQ(straight.size(), 7U + 7U);
  std::vector<StepRecord> steps = Steps(job({}), {{6, {CommandKind::kStopWithSave, ""}}});
  Append(Steps(job({"training.global_batch_size=16"})), &steps);
  ExpectSameCurve(steps, straight, 1e-13, 1e-12);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].learning_rate(), straight[i].learning_rate()) << "step " << i + 1;
    EXPECT_EQ(steps[i].consumed_samples(), straight[i].consumed_samples());
  }
}

// A manifest that somebody else has written may lack what a run's own has.
TEST_F(BatchChangeTest, AManifestWithoutBatchSizesIsRefused) {
  Steps({}, {{4, {CommandKind::kStopWithSave, ""}}});
  const std::string path = dir_.path() + "/checkpoints/tiny/" +
                           checkpoint::FolderName(OnDisk().front()) + "/manifest.json";
  const auto written = nlohmann::json::parse(base::ReadFile(path).value());
  const auto refusal = [&](const std::function<void(nlohmann::json*)>& edit) {
    nlohmann::json manifest = written;
    edit(&manifest.at("job").at("spec").at("training"));
    EXPECT_TRUE(base::WriteFileAtomic(path, manifest.dump()).ok());
    const Status status = Run({})[0].result.status;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return base::Message(status);
  };
  const std::string none =
      refusal([](nlohmann::json* training) { training->erase("global_batch_size"); });
  EXPECT_NE(none.find("has no training.global_batch_size"), std::string::npos) << none;
  const std::string ramp =
      refusal([](nlohmann::json* training) { (*training)["batch_ramp"] = "8 up"; });
  EXPECT_NE(ramp.find("training.batch_ramp"), std::string::npos) << ramp;
}

// Evaluations go on with the steps that the run has now, of which there are more than the job's.
TEST_F(BatchChangeTest, EvaluationsFindTheirSamples) {
  const std::vector<std::string> evaluates = {
      "training.train_iters=null", "training.train_samples=160", "training.eval.every_iters=1",
      "training.eval.iters=1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), evaluates.begin(), evaluates.end());
    return more;
  };
  Steps(with({"training.global_batch_size=4"}), {{19, {CommandKind::kStopWithSave, ""}}});
  Steps(with({"training.global_batch_size=16"}));
  EXPECT_TRUE(last_.result.completed);
  EXPECT_EQ(last_.result.last_step, 20 + 5);
  EXPECT_EQ(last_.seen.evals.size(), 4U + 1U);
}

TEST_F(BatchChangeTest, AnotherLengthInSamplesIsRefused) {
  Run({}, {{4, {CommandKind::kStopWithSave, ""}}});
  const std::pair<std::vector<std::string>, std::vector<const char*>> cases[] = {
      {{"training.global_batch_size=16"},
       {"global_batch_size: checkpoint has 8, job has 16", "train_samples: 160", "warmup"}},
      {{"training.train_iters=null", "training.train_samples=168"},
       {"train_iters: checkpoint has 20, job has nothing", "168", "160 samples"}},
      {{"training.train_iters=null", "training.train_tokens=2544", "training.global_batch_size=4"},
       {"train_tokens: checkpoint has nothing, job has 2544", "160 samples, this one 159"}}};
  for (const auto& [job, parts] : cases) {
    const RankOutcome refused = Run(job)[0];
    EXPECT_FALSE(refused.created);
    EXPECT_EQ(refused.result.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(failure::CauseOf(refused.result.status), failure::Cause::kUserError);
    for (const char* part : parts) {
      EXPECT_NE(base::Message(refused.result.status).find(part), std::string::npos)
          << part << " in: " << refused.result.status;
    }
  }
  // The same length in another unit is the same run.
  Steps({"training.train_iters=null", "training.train_tokens=2560"});
  EXPECT_EQ(last_.result.last_step, 20);
}

}  // namespace
}  // namespace mt::train
