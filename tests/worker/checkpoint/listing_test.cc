// What a path means, what a directory lists, and what may be deleted.
#include "worker/checkpoint/inspect/listing.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/inspect/deletion.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/checkpoint/inspect/run_totals.h"

namespace mt::checkpoint {
namespace {

using testing::HasSubstr;

class ListingTest : public testing::Test {
 protected:
  std::string Save(int64_t step, int64_t epoch = 1, Cut cut = Cut::kWhole) const {
    return SaveState(directory_, MakeState(step, epoch), cut);
  }
  const ListedFolder* Find(const Listing& listing, const std::string& name) const {
    for (const ListedFolder& one : listing.folders)
      if (one.name == name) return &one;
    ADD_FAILURE() << "no " << name;
    return nullptr;
  }
  const TempDir dir_;
  const std::string directory_ = dir_.File("ckpt");
};

TEST_F(ListingTest, TellsCheckpointsFromWhatIsNone) {
  Save(10);
  Save(20, 1, Cut::kRows);
  Save(5, 2);
  const std::string damaged = Save(30, 2);
  std::ofstream(damaged + "/manifest.json") << "{";
  const std::string newer = Save(40, 2);
  std::string text = base::ReadFile(newer + "/manifest.json").value();
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 9");
  std::ofstream(newer + "/manifest.json", std::ios::trunc) << text;
  const std::string other = Save(50, 2);
  std::filesystem::rename(other, dir_.File("ckpt/step-00000060-e0002"));
  std::filesystem::create_directories(dir_.File("ckpt/step-00000070-e0002"));
  std::filesystem::create_directories(dir_.File("ckpt/step-00000001-e0009.tmp"));
  std::filesystem::create_directories(dir_.File("ckpt/notes"));
  ASSERT_TRUE(WritePin(dir_.File("ckpt/step-00000010-e0001"), "for the paper").ok());
  ASSERT_TRUE(WriteEvaluation(dir_.File("ckpt/step-00000020-e0001"), {.step = 20, .loss = 3}).ok());
  ASSERT_TRUE(WriteLabel(directory_, {10, 1}, {.tag = "best", .meta = {}}).ok());
  std::ofstream(dir_.File("ckpt/step-00000005-e0002/TAG.json")) << "{";

  const auto listing = ListDirectory(directory_);
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_FALSE(listing->fence.has_value());
  std::vector<std::string> names;
  for (const ListedFolder& one : listing->folders) names.push_back(one.name);
  EXPECT_EQ(names, (std::vector<std::string>{"step-00000010-e0001", "step-00000020-e0001",
                                             "step-00000005-e0002", "step-00000030-e0002",
                                             "step-00000040-e0002", "step-00000060-e0002",
                                             "step-00000070-e0002", "step-00000001-e0009.tmp"}));
  const ListedFolder* ten = Find(*listing, "step-00000010-e0001");
  EXPECT_EQ(ten->fault, "");
  EXPECT_EQ(ten->pin->reason, "for the paper");
  EXPECT_EQ(ten->label->tag, "best");
  EXPECT_EQ(ten->job_name, "tiny");
  EXPECT_EQ(ten->summary.tokens, 80 * 16);
  EXPECT_EQ(ten->summary.parameters, 30 + 84 + 6);
  EXPECT_EQ(LayoutText(ten->summary), "tp 1 x pp 1 x dp 1");
  const ListedFolder* twenty = Find(*listing, "step-00000020-e0001");
  EXPECT_EQ(twenty->world_size, 2);
  EXPECT_EQ(twenty->evaluation->loss, 3);
  EXPECT_TRUE(absl::IsNotFound(twenty->label.status()));
  EXPECT_TRUE(absl::IsDataLoss(Find(*listing, "step-00000005-e0002")->label.status()));
  EXPECT_TRUE(Find(*listing, "step-00000005-e0002")->newest);
  EXPECT_THAT(Find(*listing, "step-00000030-e0002")->fault, HasSubstr("manifest"));
  EXPECT_EQ(Find(*listing, "step-00000010-e0001")->summary.num_slices, 4);
  EXPECT_EQ(Find(*listing, "step-00000020-e0001")->summary.num_slices, 8) << "by two ranks";
  EXPECT_THAT(Find(*listing, "step-00000040-e0002")->fault, HasSubstr("format version 9"));
  EXPECT_THAT(Find(*listing, "step-00000060-e0002")->fault, HasSubstr("is of step 50"));
  EXPECT_THAT(Find(*listing, "step-00000070-e0002")->fault, HasSubstr("no manifest"));
  EXPECT_THAT(Find(*listing, "step-00000001-e0009.tmp")->fault, HasSubstr("unfinished"));
  EXPECT_EQ(*ReadableCheckpoints(directory_),
            (std::vector<CheckpointId>{{10, 1}, {20, 1}, {5, 2}}));
}

TEST_F(ListingTest, TheRunIsTheManifestsOrOfBeforeIdsTheLists) {
  const std::string first = base::NewUid(), second = base::NewUid();
  SavedState named = MakeState(10, 1);
  named.manifest.run = second;
  SaveState(directory_, named);
  Save(20, 2);
  RunRecord run;
  run.id = first;
  run.epochs = {{1, 2}};
  ASSERT_TRUE(WriteRuns(directory_, {.runs = {run}}).ok());
  auto listing = ListDirectory(directory_);
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(Find(*listing, "step-00000010-e0001")->run, second);
  EXPECT_EQ(Find(*listing, "step-00000020-e0002")->run, first);
  // A list that cannot be read hides no checkpoint.
  std::ofstream(dir_.File("ckpt/run.json"), std::ios::trunc) << "{";
  listing = ListDirectory(directory_);
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_THAT(base::Message(listing->runs.status()), HasSubstr("run.json"));
  EXPECT_EQ(listing->folders.size(), 2U);
  EXPECT_EQ(Find(*listing, "step-00000010-e0001")->run, second);
  EXPECT_EQ(Find(*listing, "step-00000020-e0002")->run, "");
}

TEST_F(ListingTest, WhatAnEarlierEpochCommittedTooLateIsFencedOff) {
  Save(10);
  ASSERT_TRUE(RaiseFence({.directory = directory_, .job_uid = "u", .epoch = 3}).ok());
  Save(20);
  const auto listing = ListDirectory(directory_);
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->fence->job_uid, "u");
  EXPECT_TRUE(Find(*listing, "step-00000010-e0001")->newest);
  EXPECT_THAT(Find(*listing, "step-00000020-e0001")->fault, HasSubstr("fenced off"));
}

TEST_F(ListingTest, APathIsADirectoryOrACheckpointOrNamedClearly) {
  const std::string folder = Save(10);
  const std::string real = std::filesystem::canonical(directory_).string();
  EXPECT_EQ(FindPlace(directory_)->directory, real);
  EXPECT_FALSE(FindPlace(directory_)->id.has_value());
  EXPECT_EQ(FindPlace(folder + "/")->id, (CheckpointId{10, 1}));
  std::filesystem::create_directory_symlink(folder, dir_.File("newest"));
  EXPECT_EQ(FindCheckpoint(dir_.File("newest"))->folder, real + "/step-00000010-e0001");
  const auto fails = [&](const std::string& path, absl::StatusCode code, const char* why) {
    const Status status = FindPlace(path).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(base::Message(status), HasSubstr(why));
    EXPECT_THAT(base::Message(status), HasSubstr(path));
  };
  fails(dir_.File("nothing"), absl::StatusCode::kNotFound, "No such file");
  fails(folder + "/manifest.json", absl::StatusCode::kInvalidArgument, "is no folder");
  fails(dir_.path(), absl::StatusCode::kInvalidArgument, "neither a checkpoint nor a directory");
  std::filesystem::create_directories(dir_.File("ckpt/step-00000020-e0001.tmp"));
  fails(dir_.File("ckpt/step-00000020-e0001.tmp"), absl::StatusCode::kFailedPrecondition,
        "being written");
  std::filesystem::rename(folder, dir_.File("best"));
  fails(dir_.File("best"), absl::StatusCode::kInvalidArgument, "was it renamed");
  Save(30);
  EXPECT_THAT(base::Message(FindCheckpoint(directory_).status()),
              HasSubstr("the newest: " + directory_ + "/step-00000030-e0001"));
}

TEST_F(ListingTest, DeletionSparesPinnedHeldAndTheTwoNewest) {
  for (const int64_t step : {10, 20, 30, 40}) Save(step);
  std::ofstream(dir_.File("ckpt/step-00000040-e0001/manifest.json")) << "{";
  const auto remove = [&](int64_t step, bool ended = false) {
    return DeleteCheckpoint({.place = PlaceOf(directory_, {step, 1}), .ended = ended});
  };
  const auto refused = [&](const Status& status, const char* why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(base::Message(status), HasSubstr(why));
  };
  refused(remove(30), "two newest");
  refused(remove(20), "two newest");
  EXPECT_TRUE(remove(40).ok()) << "it is damaged, and protects nobody";
  ASSERT_TRUE(WritePin(dir_.File("ckpt/step-00000010-e0001"), "mine").ok());
  refused(remove(10), "is pinned: mine");
  ASSERT_TRUE(RemovePin(dir_.File("ckpt/step-00000010-e0001")).ok());
  ASSERT_TRUE(WriteLabel(directory_, {10, 1}, {.tag = "best", .meta = {}}).ok());
  refused(remove(10), "has the tag best; untag it first");
  std::ofstream(dir_.File("ckpt/step-00000010-e0001/TAG.json")) << "{";
  refused(remove(10), "has the file TAG.json; untag it first");
  ASSERT_TRUE(RemoveLabel(dir_.File("ckpt/step-00000010-e0001")).ok());
  ASSERT_TRUE(RaiseFence({.directory = directory_, .job_uid = "the-job", .epoch = 3}).ok());
  refused(remove(10), "held by job the-job (epoch 3)");
  EXPECT_TRUE(remove(10, /*ended=*/true).ok());
  EXPECT_EQ(*ListCheckpoints(directory_), (std::vector<CheckpointId>{{20, 1}, {30, 1}}));
  EXPECT_FALSE(base::Exists(dir_.File("ckpt/step-00000010-e0001")));
}

// Runs of three checkpoints (10, 20, 30) in epoch 1 and of two (5, 15) in epoch 2.
class RunsOfADirectoryTest : public ListingTest {
 protected:
  void SetUp() override {
    for (const CheckpointId id : {CheckpointId{10, 1}, {20, 1}, {30, 1}, {5, 2}, {15, 2}})
      SaveOf(id.epoch == 1 ? first_ : second_, id.step, id.epoch);
    std::filesystem::create_directories(Path("step-00000031-e0001.tmp"));
    WriteList({});
  }
  void SaveOf(const std::string& run, int64_t step, int64_t epoch) const {
    SavedState state = MakeState(step, epoch);
    state.manifest.run = run;
    SaveState(directory_, state);
  }
  void WriteList(const std::optional<RunSource>& from_of_second) const {
    RunRecord first, second;
    first.id = first_;
    first.epochs = {{1, 1}};
    second.id = second_;
    second.epochs = {{2, 2}};
    second.from = from_of_second;
    ASSERT_TRUE(WriteRuns(directory_, {.runs = {first, second}}).ok());
  }
  std::string Path(const std::string& name) const { return base::JoinPath(directory_, name); }
  StatusOr<RunDeletion> Delete(const std::string& run, bool ended = false) const {
    return DeleteRun({.directory = directory_, .run = run, .ended = ended});
  }
  static void ExpectRefused(const Status& status, absl::StatusCode code, const std::string& why) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(base::Message(status), HasSubstr(why));
  }
  const std::string first_ = "aaaa0000-0000-4000-8000-000000000001";
  const std::string second_ = "aaaa0000-0000-4000-8000-000000000002";
};

TEST_F(RunsOfADirectoryTest, AreToldWithTheirSizes) {
  const auto listing = ListDirectory(directory_);
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(Find(*listing, "step-00000031-e0001.tmp")->run, first_) << "by its epoch";
  EXPECT_EQ(CurrentRun(*listing), second_) << "of the newest";
  const auto others = OtherRuns(*listing, second_);
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].run, first_);
  EXPECT_EQ(others[0].checkpoints, 3);
  EXPECT_GT(others[0].bytes, 0);
  EXPECT_EQ(others[0].bytes, Find(*listing, "step-00000010-e0001")->bytes +
                                 Find(*listing, "step-00000020-e0001")->bytes +
                                 Find(*listing, "step-00000030-e0001")->bytes);
  EXPECT_EQ(OtherRuns(*listing, "").size(), 2U);
  const auto at_start = OtherRunsIn(directory_, second_);
  ASSERT_TRUE(at_start.ok()) << at_start.status();
  ASSERT_EQ(at_start->size(), 1U);
  EXPECT_EQ(at_start->front().checkpoints, 3);
  EXPECT_EQ(at_start->front().bytes, others[0].bytes);
  // The fence knows better than the newest checkpoint: its run may not have saved yet.
  const auto fence = RaiseFence({.directory = directory_, .job_uid = "u", .epoch = 3});
  ASSERT_TRUE(fence.ok()) << fence.status();
  Fence named = *fence;
  ASSERT_TRUE(NameRun(
                  directory_, first_, [] { return OkStatus(); }, &named)
                  .ok());
  EXPECT_EQ(CurrentRun(*ListDirectory(directory_)), first_);
}

TEST_F(RunsOfADirectoryTest, EachKeepsItsTwoNewest) {
  const auto remove = [&](int64_t step, int64_t epoch) {
    return DeleteCheckpoint({.place = PlaceOf(directory_, {step, epoch})});
  };
  for (const CheckpointId id : {CheckpointId{20, 1}, {30, 1}, {5, 2}, {15, 2}})
    ExpectRefused(remove(id.step, id.epoch), absl::StatusCode::kFailedPrecondition, "two newest");
  EXPECT_TRUE(remove(10, 1).ok());
}

TEST_F(RunsOfADirectoryTest, DeletingARunKeepsItsTwoNewestAndWhatIsNamed) {
  SaveOf(first_, 1, 1);
  SaveOf(first_, 2, 1);
  ASSERT_TRUE(WritePin(Path("step-00000001-e0001"), "mine").ok());
  ASSERT_TRUE(WriteLabel(directory_, {2, 1}, {.tag = "best", .meta = {}}).ok());
  const auto plan = PlanRunDeletion({.directory = directory_, .run = first_});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(base::Exists(Path("step-00000010-e0001"))) << "a plan does nothing";
  const auto done = Delete(first_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->names,
            (std::vector<std::string>{"step-00000010-e0001", "step-00000031-e0001.tmp"}));
  EXPECT_EQ(done->bytes, plan->bytes);
  EXPECT_GT(done->bytes, 0);
  ASSERT_EQ(done->kept.size(), 4U);
  EXPECT_EQ(done->kept[0].why, "is pinned");
  EXPECT_EQ(done->kept[1].why, "has a tag or meta");
  EXPECT_THAT(done->kept[2].why, HasSubstr("two newest"));
  EXPECT_EQ(*ListCheckpoints(directory_),
            (std::vector<CheckpointId>{{1, 1}, {2, 1}, {20, 1}, {30, 1}, {5, 2}, {15, 2}}));
  EXPECT_TRUE(Delete(first_)->names.empty()) << "again";
}

TEST_F(RunsOfADirectoryTest, WhatAnotherRunBeganFromStaysUntilItHasSavedTwice) {
  WriteList(RunSource{.run = first_, .id = {10, 1}, .digest = ""});
  std::filesystem::remove_all(Path("step-00000005-e0002"));
  const auto kept = Delete(first_);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->names, std::vector<std::string>{"step-00000031-e0001.tmp"});
  EXPECT_THAT(kept->kept[0].why, HasSubstr("is where run " + second_ + " began"));
  SaveOf(second_, 25, 2);
  EXPECT_EQ(Delete(first_)->names, std::vector<std::string>{"step-00000010-e0001"});
}

TEST_F(RunsOfADirectoryTest, ARunThatAJobTrainsIsRefusedAnotherIsNot) {
  const auto fence = RaiseFence({.directory = directory_, .job_uid = "the-job", .epoch = 3});
  ASSERT_TRUE(fence.ok()) << fence.status();
  const auto refused = [&](const std::string& run) {
    ExpectRefused(Delete(run).status(), absl::StatusCode::kFailedPrecondition,
                  "run " + run + " in " + directory_ + " is held by job the-job (epoch 3)");
  };
  refused(first_);  // no run is named yet: it may be this one
  refused(second_);
  Fence named = *fence;
  ASSERT_TRUE(NameRun(
                  directory_, second_, [] { return OkStatus(); }, &named)
                  .ok());
  refused(second_);
  EXPECT_TRUE(Delete(first_).ok());
  EXPECT_TRUE(Delete(second_, /*ended=*/true).ok());
}

TEST_F(RunsOfADirectoryTest, ARunIsNamedByItsIdOrHowThatBegins) {
  ExpectRefused(Delete("aaaa").status(), absl::StatusCode::kInvalidArgument, "several runs");
  ExpectRefused(Delete("bbbb").status(), absl::StatusCode::kNotFound, "but of " + first_);
  ExpectRefused(Delete("").status(), absl::StatusCode::kNotFound, "no checkpoint of run");
  std::ofstream(Path("run.json"), std::ios::trunc) << "{";
  ExpectRefused(Delete(first_).status(), absl::StatusCode::kDataLoss, "run.json");
  WriteList({});
  SaveOf("cccc0000-0000-4000-8000-000000000003", 7, 3);
  EXPECT_EQ(Delete("ccc")->run, "cccc0000-0000-4000-8000-000000000003");
}

}  // namespace
}  // namespace mt::checkpoint
