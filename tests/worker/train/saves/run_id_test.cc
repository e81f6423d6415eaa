// The id of a run through whole starts: where it is written and when, which starts share it, and
// that nothing which is computed depends on it.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointId;
using checkpoint::RunList;

class RunIdTest : public TrainTest {
 protected:
  std::string Folder(const std::string& directory = "tiny") const {
    return dir_.path() + "/checkpoints/" + directory;
  }
  RunList Runs(const std::string& directory = "tiny") const {
    return checkpoint::ReadRuns(Folder(directory)).value();
  }
  checkpoint::Manifest ManifestOf(const CheckpointId& id,
                                  const std::string& directory = "tiny") const {
    return checkpoint::ReadManifest(Folder(directory), id).value();
  }
  std::string FenceRun(const std::string& directory = "tiny") const {
    return checkpoint::ReadFence(Folder(directory)).value()->run;
  }
  // Trains to this step; what rank 0 was told of the run.
  RunInfo TrainTo(int64_t step, std::vector<std::string> overrides = {}) {
    overrides.push_back("training.exit_at_iter=" + std::to_string(step));
    const std::vector<RankOutcome> outcomes = Run(overrides);
    ExpectClean(outcomes, step);
    last_ = outcomes[0].seen;
    EXPECT_TRUE(base::IsUid(last_.infos.at(0).run.id)) << last_.infos.at(0).run.id;
    return last_.infos.at(0);
  }
  // What a program from before runs had ids has left.
  void ForgetIds(const std::string& directory = "tiny") const {
    fs::remove(Folder(directory) + "/run.json");
    std::vector<std::string> files = {Folder(directory) + "/FENCE"};
    for (const CheckpointId& id : OnDisk(directory))
      files.push_back(Folder(directory) + "/" + checkpoint::FolderName(id) + "/manifest.json");
    for (const std::string& file : files) {
      nlohmann::json content = nlohmann::json::parse(base::ReadFile(file).value());
      EXPECT_EQ(content.erase("run"), 1U) << file;
      ASSERT_TRUE(base::WriteFileAtomic(file, content.dump(1) + "\n").ok());
    }
  }

  Observed last_;  // of rank 0
};

// A run that begins over a trained model prunes what it has saved itself, and says what else is
// there.
TEST_F(RunIdTest, AFreshRunDeletesNothingOfATrainedModel) {
  const std::vector<std::string> keeps = {"checkpoint.every_iters=2", "checkpoint.keep_last=2"};
  const auto with = [&keeps](const std::vector<std::string>& more) {
    std::vector<std::string> all = keeps;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const RunInfo trained = TrainTo(20, keeps);
  EXPECT_EQ(trained.other_runs.runs, 0);
  ASSERT_EQ(OnDisk(), (std::vector<CheckpointId>{{18, 1}, {20, 1}}));
  const RunInfo fresh = TrainTo(9, with({"checkpoint.fresh=true"}));
  EXPECT_NE(fresh.run.id, trained.run.id);
  EXPECT_EQ(fresh.other_runs.runs, 1);
  EXPECT_EQ(fresh.other_runs.checkpoints, 2);
  EXPECT_GT(fresh.other_runs.bytes, 1000);
  EXPECT_EQ(OnDisk(), (std::vector<CheckpointId>{{18, 1}, {20, 1}, {8, 2}, {9, 2}}));
  // The new run goes on, and still removes its own alone.
  const RunInfo on = TrainTo(12, keeps);
  EXPECT_EQ(on.run.id, fresh.run.id);
  EXPECT_EQ(on.resumed_from_step, 9);
  EXPECT_EQ(OnDisk(), (std::vector<CheckpointId>{{18, 1}, {20, 1}, {10, 3}, {12, 3}}));
  // So does one that begins from a step of the first.
  EXPECT_EQ(TrainTo(20, with({"checkpoint.load=18", "name=third", "checkpoint.directory=tiny"}))
                .other_runs.checkpoints,
            4);
  EXPECT_EQ(OnDisk(), (std::vector<CheckpointId>{{18, 1}, {20, 1}, {10, 3}, {12, 3}, {20, 4}}));
}

// Before runs had ids, too: the first start over them tells the runs apart.
TEST_F(RunIdTest, ADirectoryFromBeforeRunsHadIdsKeepsItsRunsApart) {
  const std::vector<std::string> keeps = {"checkpoint.every_iters=2", "checkpoint.keep_last=2"};
  TrainTo(20, keeps);
  std::vector<std::string> fresh = keeps;
  fresh.emplace_back("checkpoint.fresh=true");
  TrainTo(4, fresh);
  ForgetIds();
  EXPECT_EQ(TrainTo(7, keeps).resumed_from_step, 4);
  EXPECT_EQ(OnDisk(), (std::vector<CheckpointId>{{18, 1}, {20, 1}, {6, 3}, {7, 3}}));
}

TEST_F(RunIdTest, IsWrittenEverywhereBeforeTheFirstStep) {
  layout_ = {"parallel.data=2"};
  std::string of_list, of_fence;
  adjust_ = [&](int rank, TrainArgs* args) {
    if (rank != 0) return;
    args->after_step = [&](int64_t step, const params::ParamStore&) {
      if (step != 1) return;
      of_list = Runs().runs.at(0).id;
      of_fence = FenceRun();
    };
  };
  const RunInfo info = TrainTo(10, {"checkpoint.every_iters=5"});
  EXPECT_TRUE(info.run_begins);
  EXPECT_EQ(of_list, info.run.id);
  EXPECT_EQ(of_fence, info.run.id);
  EXPECT_EQ(ManifestOf({5, 1}).run, info.run.id);
  EXPECT_EQ(ManifestOf({10, 1}).run, info.run.id);
  ASSERT_FALSE(last_.saves.empty());
  for (const CheckpointRecord& save : last_.saves) EXPECT_EQ(save.run, info.run.id);
  const checkpoint::RunRecord run = Runs().runs.at(0);
  EXPECT_EQ(run.job_name, "tiny");
  EXPECT_EQ(run.place.directory, "tiny");
  EXPECT_EQ(run.place.path, fs::canonical(Folder()).string());
  EXPECT_FALSE(run.beginning.named());
}

TEST_F(RunIdTest, GoesOnWithItsCheckpoints) {
  const std::string run = TrainTo(10).run.id;
  const RunInfo second = TrainTo(15);
  EXPECT_EQ(second.resumed_from_step, 10);
  EXPECT_FALSE(second.run_begins);
  EXPECT_EQ(second.run.id, run);
  EXPECT_EQ(ManifestOf({15, 2}).run, run);
  // By another job of the same directory, in another layout.
  layout_ = {"parallel.data=2", "name=other", "checkpoint.directory=tiny"};
  EXPECT_EQ(TrainTo(20).run.id, run);
  ASSERT_EQ(Runs().runs.size(), 1U);
  EXPECT_EQ(Runs().runs[0].epochs, (std::vector<std::pair<int64_t, int64_t>>{{1, 3}}));
  EXPECT_EQ(Runs().runs[0].job_name, "tiny") << "with which it began";
}

TEST_F(RunIdTest, BeginsAnewWhereTheJobSaysSo) {
  const std::string first = TrainTo(10).run.id;
  const RunInfo fresh = TrainTo(5, {"checkpoint.fresh=true"});
  EXPECT_TRUE(fresh.run_begins);
  EXPECT_NE(fresh.run.id, first);
  EXPECT_TRUE(fresh.run.beginning.fresh);
  EXPECT_EQ(fresh.run.from, std::nullopt);
  // The newest checkpoint is of the run that began last.
  EXPECT_EQ(TrainTo(7).run.id, fresh.run.id);
  const RunInfo by_step = TrainTo(12, {"checkpoint.load=10"});
  EXPECT_TRUE(by_step.run_begins);
  EXPECT_EQ(by_step.resumed_from_step, 10);
  EXPECT_EQ(by_step.run.from->run, first);
  EXPECT_EQ(by_step.run.from->id, (CheckpointId{10, 1}));
  EXPECT_EQ(by_step.run.from->digest.substr(0, 5), "xxh3:");
  EXPECT_EQ(Runs().runs.size(), 3U);
}

TEST_F(RunIdTest, ANewDirectoryThatLoadsAnothersBeginsAndNamesIt) {
  const std::string first = TrainTo(10).run.id;
  const std::vector<std::string> branch = {"checkpoint.directory=branch", "checkpoint.load=tiny"};
  const RunInfo info = TrainTo(12, branch);
  EXPECT_TRUE(info.run_begins);
  EXPECT_NE(info.run.id, first);
  EXPECT_EQ(info.run.from->run, first);
  EXPECT_EQ(info.run.parent, "");
  const RunInfo weights = TrainTo(
      3, {"checkpoint.directory=tuned", "checkpoint.load=tiny", "checkpoint.load_kind=weights"});
  EXPECT_TRUE(weights.run_begins);
  EXPECT_EQ(weights.run.beginning.load_kind, "weights");
  EXPECT_EQ(weights.run.from->run, first);
  EXPECT_EQ(Runs().runs.size(), 1U) << "the directory that was loaded from stays as it was";
}

// Removes a folder once a checkpoint is loaded.
class RemovingObserver final : public TrainObserver {
 public:
  explicit RemovingObserver(std::string folder) : folder_(std::move(folder)) {}
  void OnActivityEnd(ActivityKind kind) override {
    if (kind == ActivityKind::kLoading) removed_ = fs::remove_all(folder_) > 0 || removed_;
  }
  void OnRunInfo(const RunInfo& info) override { info_ = info; }
  bool removed() const { return removed_; }
  const RunInfo& info() const { return info_; }

 private:
  const std::string folder_;
  bool removed_ = false;
  RunInfo info_;
};

// By the run that saves there, as it prunes.
TEST_F(RunIdTest, ACheckpointOfAnotherDirectoryMayGoOnceItIsLoaded) {
  TrainTo(10);
  RemovingObserver observer(Folder() + "/" + checkpoint::FolderName({10, 1}));
  adjust_ = [&](int, TrainArgs* args) { args->observer = &observer; };
  ExpectClean(
      Run({"checkpoint.directory=branch", "checkpoint.load=tiny", "training.exit_at_iter=12"}), 12);
  EXPECT_TRUE(observer.removed());
  EXPECT_TRUE(observer.info().run_begins);
  EXPECT_EQ(observer.info().run.from, (checkpoint::RunSource{.run = "", .id = {10, 1}}));
}

TEST_F(RunIdTest, ACopiedDirectoryIsARunOfItsOwn) {
  const std::string first = TrainTo(10).run.id;
  fs::copy(Folder(), Folder("copy"), fs::copy_options::recursive);
  const std::vector<std::string> job = {"checkpoint.directory=copy"};
  const RunInfo copy = TrainTo(12, job);
  EXPECT_EQ(copy.resumed_from_step, 10);
  EXPECT_TRUE(copy.run_begins);
  EXPECT_EQ(copy.run.parent, first);
  const RunInfo on = TrainTo(14, job);
  EXPECT_FALSE(on.run_begins) << "it is said once";
  EXPECT_EQ(on.run.id, copy.run.id);
  EXPECT_EQ(TrainTo(11).run.id, first) << "the original is as it was";
}

TEST_F(RunIdTest, DirectoriesOfBeforeGetIdsOnce) {
  TrainTo(5);
  TrainTo(10);
  TrainTo(5, {"checkpoint.fresh=true"});
  ForgetIds();
  const RunInfo info = TrainTo(8);
  EXPECT_EQ(info.resumed_from_step, 5);
  EXPECT_FALSE(info.run_begins);
  ASSERT_EQ(Runs().runs.size(), 2U);
  EXPECT_EQ(Runs().runs[0].epochs, (std::vector<std::pair<int64_t, int64_t>>{{1, 2}}));
  EXPECT_EQ(Runs().runs[1].id, info.run.id);
  EXPECT_TRUE(Runs().runs[1].beginning.fresh) << "as its first checkpoint's job says";
  EXPECT_EQ(TrainTo(9).run.id, info.run.id);
  EXPECT_EQ(Runs().runs.size(), 2U);
}

TEST_F(RunIdTest, WithoutADirectoryItIsOnlyTold) {
  const RunInfo first = TrainTo(2, {"checkpoint.directory=none"});
  const RunInfo second = TrainTo(2, {"checkpoint.directory=none"});
  EXPECT_TRUE(first.run_begins && second.run_begins);
  EXPECT_NE(first.run.id, second.run.id);
  EXPECT_FALSE(fs::exists(Folder()));
}

TEST_F(RunIdTest, ADamagedListRefusesTheStartAndStays) {
  TrainTo(10);
  const std::string fence = base::ReadFile(Folder() + "/FENCE").value();
  for (const char* text : {"{", R"({"format": "megatrain-runs", "version": 2, "runs": []})"}) {
    std::ofstream(Folder() + "/run.json") << text;
    const std::vector<RankOutcome> outcomes = Run({});
    EXPECT_FALSE(outcomes[0].created);
    EXPECT_NE(base::Message(outcomes[0].result.status).find(Folder() + "/run.json"),
              std::string::npos)
        << outcomes[0].result.status;
    EXPECT_EQ(base::ReadFile(Folder() + "/run.json").value(), text);
    EXPECT_EQ(base::ReadFile(Folder() + "/FENCE").value(), fence) << "nothing is taken over";
    EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{10}));
  }
  // Moved away, as the message says, it is made anew with the same run.
  const std::string run = ManifestOf({10, 1}).run;
  fs::remove(Folder() + "/run.json");
  const RunInfo info = TrainTo(12);
  EXPECT_FALSE(info.run_begins);
  EXPECT_EQ(info.run.id, run);
}

// The list of another directory beside checkpoints that are not its own.
TEST_F(RunIdTest, AnothersListDeletesNothing) {
  const std::string mine = TrainTo(10).run.id;
  const std::string theirs = TrainTo(5, {"checkpoint.directory=other"}).run.id;
  fs::copy_file(Folder("other") + "/run.json", Folder() + "/run.json",
                fs::copy_options::overwrite_existing);
  const RunInfo info = TrainTo(12);
  EXPECT_EQ(info.resumed_from_step, 10);
  std::set<std::string> ids;
  for (const checkpoint::RunRecord& run : Runs().runs) ids.insert(run.id);
  EXPECT_TRUE(ids.contains(theirs));
  EXPECT_TRUE(ids.contains(info.run.id));
  EXPECT_EQ(info.run.id, mine) << "the fence knows it";
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{10, 12}));
}

TEST_F(RunIdTest, NoBitDependsOnIt) {
  const auto train = [this](const std::string& directory) {
    TrainTo(6, {"checkpoint.directory=" + directory});
    return std::pair(last_.steps, last_.infos.at(0).run.id);
  };
  const auto a = train("a"), b = train("b");
  EXPECT_NE(a.second, b.second);
  ExpectEqualCurve(a.first, b.first);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(Folder("a") + "/step-00000006-e0001")) {
    const std::string name = entry.path().filename().string();
    if (name == "manifest.json") continue;
    ++files;
    EXPECT_TRUE(base::ReadFile(entry.path().string()).value() ==
                base::ReadFile(Folder("b") + "/step-00000006-e0001/" + name).value())
        << name;
  }
  EXPECT_GE(files, 2);
}

}  // namespace
}  // namespace mt::train
