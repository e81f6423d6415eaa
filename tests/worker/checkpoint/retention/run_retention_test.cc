// Retention among the checkpoints of several runs in one directory: what another run has made
// counts for nothing and stays, whatever the rules.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/checkpoint/tiny_checkpoint.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/run_list.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/second_copy.h"

namespace mt::checkpoint {
namespace {

using Ids = std::vector<CheckpointId>;

TEST(RunChoiceOfDoomedTest, AnotherRunsCountForNothing) {
  const std::vector<StoredCheckpoint> all = {{.id = {100, 1}, .run = "a", .valid_loss = 1},
                                             {.id = {200, 1}, .run = "a", .verified = true},
                                             {.id = {10, 2}, .run = "b", .valid_loss = 9},
                                             {.id = {20, 2}, .run = "b", .valid_loss = 5},
                                             {.id = {30, 2}, .run = "b"},
                                             {.id = {40, 2}, .run = "b"},
                                             {.id = {900, 3}, .run = ""}};
  EXPECT_EQ(ChooseDoomed({}, all, "b"), (Ids{{10, 2}, {20, 2}}));
  EXPECT_EQ(ChooseDoomed({.keep_best = 1}, all, "b"), (Ids{{10, 2}}));
  EXPECT_EQ(ChooseDoomed({}, all, "a"), Ids{}) << "its two newest";
  EXPECT_EQ(ChooseDoomed({}, all, "c"), Ids{});
  EXPECT_EQ(ChooseDoomed({}, all).size(), 4U) << "no run is known: all are one's";
}

// Any rules over any checkpoints: as if the others were not there.
TEST(RunChoiceOfDoomedTest, AsInADirectoryOfItsOwn) {
  std::mt19937_64 random(20261129);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const std::vector<std::string> runs = {"a", "b", "c", ""};
  for (int round = 0; round < 2000; ++round) {
    std::vector<StoredCheckpoint> all;
    std::set<CheckpointId> ids;
    for (int64_t i = below(24); i > 0; --i) {
      StoredCheckpoint one{.id = {1 + below(40), 1 + below(6)},
                           .run = runs[static_cast<size_t>(below(4))]};
      one.pinned = below(8) == 0;
      one.verified = below(8) == 0;
      if (below(2) == 0) one.valid_loss = static_cast<double>(below(5));
      if (ids.insert(one.id).second) all.push_back(one);
    }
    RetentionRules rules{.keep_last = below(5), .keep_every = below(4) * 3, .keep_best = below(4)};
    if (below(3) == 0) rules.base = CheckpointId{1 + below(40), 1 + below(6)};
    for (const std::string run : {"a", "b", "c"}) {
      std::vector<StoredCheckpoint> own;
      for (const StoredCheckpoint& one : all)
        if (one.run == run) own.push_back(one);
      const Ids doomed = ChooseDoomed(rules, all, run);
      EXPECT_EQ(doomed, ChooseDoomed(rules, own)) << round << " " << run;
      EXPECT_LE(doomed.size() + std::min<size_t>(own.size(), 2), own.size()) << round;
    }
  }
}

class RunRetentionTest : public testing::Test {
 protected:
  void Save(const CheckpointId& id, const std::string& run = "") const {
    SaveTiny(dir_.path(), id.step, id.epoch, run);
  }
  std::string Folder(const CheckpointId& id) const { return dir_.File(FolderName(id)); }
  // The runs a and b have trained in these epochs.
  void List(const std::vector<std::pair<int64_t, int64_t>>& of_a,
            const std::vector<std::pair<int64_t, int64_t>>& of_b) const {
    RunRecord a, b;
    a.id = a_;
    a.epochs = of_a;
    b.id = b_;
    b.epochs = of_b;
    ASSERT_TRUE(WriteRuns(dir_.path(), {.runs = {a, b}}).ok());
  }
  std::vector<std::string> Prune(const std::string& run, int64_t epoch) const {
    const auto removed =
        PruneCheckpoints({.directory = dir_.path(), .rules = {}, .epoch = epoch, .run = run});
    EXPECT_TRUE(removed.ok()) << removed.status();
    return removed.ok() ? *removed : std::vector<std::string>{"none"};
  }
  Ids OnDisk() const { return ListCheckpoints(dir_.path()).value(); }

  const TempDir dir_;
  const std::string a_ = base::NewUid(), b_ = base::NewUid();
};

using Names = std::vector<std::string>;

TEST_F(RunRetentionTest, ByTheManifestElseByTheEpoch) {
  List({{1, 2}}, {{3, 3}});
  Save({10, 1});
  Save({20, 1});
  Save({30, 2});
  Save({5, 3}, b_);
  Save({6, 3}, b_);
  Save({7, 3}, b_);
  Save({99, 3}, base::NewUid());  // copied here alone
  EXPECT_EQ(Prune(b_, 3), Names{FolderName({5, 3})});
  EXPECT_EQ(Prune(b_, 3), Names{});
  EXPECT_EQ(Prune(a_, 3), Names{FolderName({10, 1})});
  EXPECT_EQ(OnDisk(), (Ids{{20, 1}, {30, 2}, {6, 3}, {7, 3}, {99, 3}}));
  // A manifest that is damaged tells nothing; the epoch does.
  Save({8, 3}, b_);
  std::ofstream(Folder({6, 3}) + "/manifest.json", std::ios::trunc) << "{";
  EXPECT_EQ(Prune(b_, 3), Names{FolderName({6, 3})});
}

// Two damaged ones are newer than the only one from which anybody could go on.
TEST_F(RunRetentionTest, ADamagedOneKeepsNoPlaceFromAnIntactOne) {
  List({{1, 1}}, {});
  for (const int64_t step : {10, 20, 30, 40}) Save({step, 1}, a_);
  for (const int64_t step : {20, 30})
    std::ofstream(Folder({step, 1}) + "/manifest.json", std::ios::trunc) << "{";
  EXPECT_EQ(Prune(a_, 1), (Names{FolderName({20, 1}), FolderName({30, 1})}));
  EXPECT_EQ(OnDisk(), (Ids{{10, 1}, {40, 1}}));
  // The newest of all stays, damaged or not.
  Save({50, 1}, a_);
  std::ofstream(Folder({50, 1}) + "/manifest.json", std::ios::trunc) << "{";
  EXPECT_EQ(Prune(a_, 1), Names{});
}

TEST_F(RunRetentionTest, WhatIsKnownIsNotReadAgain) {
  List({{1, 2}}, {{3, 3}});
  Save({99, 3}, a_);  // copied here alone
  Save({1, 3}, b_);
  std::map<CheckpointId, std::string> known;
  const PruneArgs args{
      .directory = dir_.path(), .rules = {}, .epoch = 3, .run = b_, .known = &known};
  ASSERT_TRUE(PruneCheckpoints(args).ok());
  EXPECT_EQ(known, (std::map<CheckpointId, std::string>{{{1, 3}, b_}, {{99, 3}, a_}}));
  for (const CheckpointId id : Ids{{1, 3}, {99, 3}})
    std::ofstream(Folder(id) + "/manifest.json", std::ios::trunc) << "{";
  Save({2, 3}, b_);
  Save({3, 3}, b_);
  EXPECT_EQ(*PruneCheckpoints(args), Names{FolderName({1, 3})});
  EXPECT_TRUE(base::Exists(Folder({99, 3})));
}

TEST_F(RunRetentionTest, ItsOwnLeftoversGoAnothersStay) {
  List({{1, 1}}, {{2, 3}});
  Save({10, 1}, a_);
  Save({20, 3}, b_);
  for (const CheckpointId id : Ids{{11, 1}, {12, 2}, {13, 3}, {14, 9}})
    std::filesystem::create_directories(Folder(id) + ".tmp");
  std::filesystem::create_directories(Folder({15, 1}));
  std::filesystem::create_directories(Folder({16, 2}));
  auto removed = Prune(b_, 3);
  std::ranges::sort(removed);
  EXPECT_EQ(removed, (Names{FolderName({12, 2}) + ".tmp", FolderName({16, 2})}));
  EXPECT_TRUE(base::Exists(Folder({11, 1}) + ".tmp"));
  EXPECT_TRUE(base::Exists(Folder({15, 1})));
  EXPECT_TRUE(base::Exists(Folder({13, 3}) + ".tmp")) << "of this epoch: being written";
}

// A start that failed before it had named its run, or one of an earlier version.
TEST_F(RunRetentionTest, LeftoversOfNoRunGoWhereAListCouldTell) {
  const std::string unfinished = Folder({11, 4}) + ".tmp";
  const auto make = [&] { std::filesystem::create_directories(unfinished); };
  make();
  EXPECT_EQ(Prune(b_, 5), Names{}) << "no list";
  std::ofstream(dir_.File("run.json")) << "{";
  EXPECT_EQ(Prune(b_, 5), Names{}) << "one that cannot be read";
  List({{1, 1}}, {{5, 5}});
  EXPECT_EQ(Prune(b_, 5), Names{FolderName({11, 4}) + ".tmp"});
}

TEST_F(RunRetentionTest, WithoutAListTheManifestsTell) {
  Save({1, 1}, a_);
  for (const int64_t step : {2, 3, 4}) Save({step, 2}, b_);
  Save({9, 2});  // from before runs had ids: whose?
  EXPECT_EQ(Prune(b_, 2), Names{FolderName({2, 2})});
  std::ofstream(dir_.File("run.json")) << "{";
  Save({5, 2}, b_);
  EXPECT_EQ(Prune(b_, 2), Names{FolderName({3, 2})});
  EXPECT_EQ(OnDisk(), (Ids{{1, 1}, {4, 2}, {5, 2}, {9, 2}}));
}

// What a fenced-off epoch has committed too late is for its own run to clear.
TEST_F(RunRetentionTest, ALateCommitOfAnotherRunStays) {
  List({{1, 1}}, {{2, 3}});
  Save({1, 1}, a_);
  ASSERT_TRUE(RaiseFence({.directory = dir_.path(), .job_uid = "u", .epoch = 1}).ok());
  Save({50, 1}, a_);
  Save({2, 2}, b_);
  ASSERT_TRUE(RaiseFence({.directory = dir_.path(), .job_uid = "u", .epoch = 2}).ok());
  Save({60, 2}, b_);
  EXPECT_EQ(Prune(b_, 9), Names{FolderName({60, 2})});
  EXPECT_TRUE(base::Exists(Folder({50, 1})));
  EXPECT_EQ(Prune(a_, 9), Names{FolderName({50, 1})});
}

TEST_F(RunRetentionTest, InTheSecondDirectory) {
  List({{1, 1}}, {{2, 2}});
  const TempDir to;
  const auto copy = [&](const std::string& run, const Ids& ids) {
    SecondCopy second({.from = dir_.path(), .to = to.File("to"), .epoch = 2, .run = run});
    for (const CheckpointId& id : ids) {
      Save(id);  // the epoch tells its run, by the list of the first directory
      second.Add(id, {});
      EXPECT_TRUE(second.WaitIdle(std::chrono::minutes(1)));
    }
  };
  copy(a_, {{1, 1}, {2, 1}, {3, 1}});
  copy(b_, {{1, 2}, {2, 2}, {3, 2}});
  EXPECT_EQ(ListCheckpoints(to.File("to")).value(), (Ids{{2, 1}, {3, 1}, {2, 2}, {3, 2}}));
}

}  // namespace
}  // namespace mt::checkpoint
