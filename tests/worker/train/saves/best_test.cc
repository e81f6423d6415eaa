// The best checkpoint: each save has the loss of its own step, whenever it ends, and losses are of
// one measure.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/mutex.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"

namespace mt::train {
namespace {

// Something that happens once; a thread may wait for it.
class Flag {
 public:
  void Set() {
    base::MutexLock lock(&mu_);
    set_ = true;
    changed_.NotifyAll();
  }
  // Gives up after a minute.
  void Await() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    base::MutexLock lock(&mu_);
    while (!set_ && changed_.WaitUntil(&mu_, limit)) {
    }
    EXPECT_TRUE(set_);
  }

 private:
  base::Mutex mu_;
  base::CondVar changed_;
  bool set_ GUARDED_BY(mu_) = false;
};

class BestTest : public TrainTest {
 protected:
  using Losses = std::vector<std::pair<int64_t, double>>;

  // Evaluates a batch every five steps, and saves as often.
  std::vector<std::string> With(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"checkpoint.every_iters=5", "checkpoint.keep_last=9",
                                    "training.eval.every_iters=5", "training.eval.iters=1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Observed Train(const std::vector<std::string>& more, int64_t last_step = 20) {
    const auto ranks = Run(With(more));
    ExpectClean(ranks, last_step);
    return ranks[0].seen;
  }
  // What is stored beside the checkpoint of this step; none where nothing is.
  std::optional<checkpoint::Evaluation> Stored(int64_t step, int64_t epoch = 1) const {
    const auto read = checkpoint::ReadEvaluation(dir_.path() + "/checkpoints/tiny/" +
                                                 checkpoint::FolderName({step, epoch}));
    EXPECT_TRUE(read.ok()) << read.status();
    return read.value_or(std::nullopt);
  }
  // Of evaluations during training.
  static Losses Parts(const Observed& seen) {
    Losses losses;
    for (const EvalRecord& eval : seen.evals) {
      if (!eval.final) losses.emplace_back(eval.step, eval.loss);
    }
    return losses;
  }
  static std::set<double> Different(const Losses& losses) {
    std::set<double> values;
    for (const auto& [step, loss] : losses) values.insert(loss);
    return values;
  }
};

// The save of step 5 is written while the steps behind the evaluation of step 10 train.
TEST_F(BestTest, ASaveThatEndsAfterTheNextEvaluationHasItsOwnLoss) {
  Flag evaluated, over;
  adjust_ = [&](int, TrainArgs* args) {
    args->after_step = [&](int64_t step, const params::ParamStore&) {
      if (step == 11) evaluated.Set();
      if (step == 12) over.Await();
    };
    args->checkpoint_failpoint = [&](std::string_view point) {
      if (point == "begin") evaluated.Await();
      if (point == "over") over.Set();
      return OkStatus();
    };
  };
  const Observed seen = Train({"checkpoint.async_save=true", "checkpoint.keep_best=1"});
  const Losses losses = Parts(seen);
  ASSERT_EQ(losses.size(), 4U);
  ASSERT_EQ(losses[0].first, 5);
  ASSERT_EQ(StepsOnDisk().front(), 5);
  const auto stored = Stored(5);
  ASSERT_TRUE(stored.has_value()) << "a save without a loss is never the best";
  EXPECT_EQ(stored->step, 5);
  EXPECT_EQ(stored->loss, losses[0].second);
}

// At learning rate 0 the model is one model: what differs is what it is measured on.
TEST_F(BestTest, OneModelHasOneLossByFixedWindows) {
  const std::vector<std::string> still = {"optimizer.lr=0", "optimizer.min_lr=0"};
  const auto with = [&](const std::string& more, const std::string& directory) {
    std::vector<std::string> all = still;
    all.push_back(more);
    all.push_back("checkpoint.directory=" + directory);
    return Train(all);
  };
  const Losses fixed = Parts(with("checkpoint.keep_best=1", "a"));
  EXPECT_EQ(fixed.size(), 4U) << "the last step, too";
  EXPECT_EQ(Different(fixed).size(), 1U);
  const Losses rolling = Parts(with("checkpoint.keep_best=0", "b"));
  EXPECT_EQ(rolling.size(), 3U);
  EXPECT_EQ(Different(rolling).size(), 3U);
  const Losses asked = Parts(with("training.eval.windows=fixed", "c"));
  EXPECT_EQ(asked.size(), 3U) << "without keep_best the last step has the whole split alone";
  EXPECT_EQ(Different(asked), Different(fixed));
}

TEST_F(BestTest, TheLastSaveIsMeasuredAsTheOthers) {
  const Observed seen = Train({"checkpoint.keep_best=1"});
  const Losses losses = Parts(seen);
  ASSERT_EQ(losses.size(), 4U);
  for (const auto& [step, loss] : losses) {
    const auto stored = Stored(step);
    ASSERT_TRUE(stored.has_value()) << step;
    EXPECT_EQ(stored->loss, loss);
    EXPECT_EQ(stored->measure, seen.evals[0].measure);
    EXPECT_EQ(stored->measure.kind, checkpoint::kFixed);
    EXPECT_EQ(stored->measure.samples, 8);
  }
  ASSERT_EQ(seen.evals.size(), 5U);
  EXPECT_TRUE(seen.evals.back().final);
  EXPECT_EQ(seen.evals.back().measure.kind, checkpoint::kSplit);
}

// Without keep_best the last save has the loss of the whole split, and says so.
TEST_F(BestTest, APartOfTheSplitAndAllOfItAreTwoMeasures) {
  Train({});
  ASSERT_TRUE(Stored(15).has_value() && Stored(20).has_value());
  EXPECT_EQ(Stored(15)->measure.kind, checkpoint::kRolling);
  EXPECT_EQ(Stored(20)->measure.kind, checkpoint::kSplit);
  EXPECT_EQ(Stored(20)->measure.samples, 0);
}

// The whole split each time is one measure, to the end.
TEST_F(BestTest, TheWholeSplitIsMeasuredOnceAtTheEnd) {
  const Observed seen = Train({"checkpoint.keep_best=1", "training.eval.iters=0"});
  EXPECT_EQ(seen.evals.size(), 4U);
  ASSERT_TRUE(Stored(15).has_value() && Stored(20).has_value());
  EXPECT_EQ(Stored(15)->measure, Stored(20)->measure);
  EXPECT_EQ(Stored(20)->measure.kind, checkpoint::kSplit);
}

// Both ways a run that goes on is evaluated as one that was never stopped.
TEST_F(BestTest, ARunThatGoesOnIsMeasuredAsBefore) {
  for (const char* const windows : {"fixed", "rolling"}) {
    const auto with = [&](const std::string& directory, std::vector<std::string> more) {
      more.push_back(std::string("training.eval.windows=") + windows);
      more.push_back("checkpoint.keep_best=1");
      more.push_back("checkpoint.directory=" + directory);
      return more;
    };
    const std::string name = windows;
    const Observed straight = Train(with(name + "-a", {}));
    Losses parts = Parts(Train(with(name + "-b", {"training.exit_at_iter=10"}), 10));
    const Observed rest = Train(with(name + "-b", {}));
    for (const auto& part : Parts(rest)) parts.push_back(part);
    EXPECT_EQ(parts, Parts(straight)) << windows;
    ASSERT_FALSE(rest.evals.empty());
    EXPECT_EQ(rest.evals[0].measure, straight.evals[0].measure) << windows;
  }
}

// The attempt that saved the last step has not come to its evaluation; the next one has nothing
// else to do.
TEST_F(BestTest, TheNextAttemptGivesTheLastSaveItsLoss) {
  const Losses losses = Parts(Train({"checkpoint.keep_best=1"}));
  const std::string file = dir_.path() + "/checkpoints/tiny/" + checkpoint::FolderName({20, 1}) +
                           "/" + std::string(checkpoint::kEvaluationName);
  ASSERT_TRUE(std::filesystem::remove(file));
  ASSERT_TRUE(Train({"checkpoint.keep_best=1"}).steps.empty());
  ASSERT_TRUE(Stored(20).has_value());
  EXPECT_EQ(Stored(20)->loss, losses.back().second);
  // One that has a loss keeps it.
  Train({"training.eval.windows=rolling"});
  EXPECT_EQ(Stored(20)->measure.kind, checkpoint::kFixed);
}

// The last step is none at which an evaluation is due.
TEST_F(BestTest, TheLastStepHasAWindowOfItsOwn) {
  const Observed seen =
      Train({"training.eval.every_iters=10", "training.eval.windows=rolling",
             "checkpoint.keep_best=1", "training.train_iters=18", "checkpoint.at_end=true"},
            18);
  const Losses losses = Parts(seen);
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_EQ(losses[1].first, 18);
  ASSERT_TRUE(Stored(18).has_value());
  EXPECT_EQ(Stored(18)->loss, losses[1].second);
  EXPECT_EQ(Stored(18)->measure, Stored(10)->measure);
}

// A live update that reads other samples is another measure.
TEST_F(BestTest, AnUpdateChangesTheMeasure) {
  std::vector<std::string> after = With({"checkpoint.keep_best=1"});
  after.push_back("training.eval.windows=fixed");
  const Command update{
      .kind = CommandKind::kUpdate, .id = "u", .settings = SettingsOf(TinyJob(after))};
  const auto ranks = Run(With({"training.eval.windows=rolling"}), {{7, update}});
  ExpectClean(ranks, 20);
  ASSERT_TRUE(Stored(5).has_value() && Stored(15).has_value() && Stored(20).has_value());
  EXPECT_EQ(Stored(5)->measure.kind, checkpoint::kRolling);
  EXPECT_EQ(Stored(15)->measure.kind, checkpoint::kFixed);
  EXPECT_EQ(Stored(20)->measure, Stored(15)->measure);
}

}  // namespace
}  // namespace mt::train
