// What a resume finds in every state of a directory, and what it then takes or refuses.
#include "worker/checkpoint/format/resume_base.h"

#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/sanitized.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

constexpr char kJob[] = "job-1";
constexpr char kRoot[] = "root-a";
constexpr char kOneRun[] = "11111111-1111-4111-8111-111111111111";
constexpr char kOtherRun[] = "22222222-2222-4222-9222-222222222222";
constexpr char kRunC[] = "33333333-3333-4333-8333-333333333333";

class ResumeBaseTest : public ::testing::Test {
 protected:
  // A checkpoint in the directory; its digest.
  std::string Save(int64_t step, int64_t epoch = 1, const std::string& uid = kJob,
                   const std::string& run = "") {
    SaveArgs args;
    args.directory = directory_;
    args.manifest.step = step;
    args.manifest.epoch = epoch;
    args.manifest.job_uid = uid;
    args.manifest.run = run;
    args.manifest.job_name = "name";
    args.manifest.spec_json = "{}";
    args.slices = {{.key = "weights/w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {2},
                    .offset = {0},
                    .shape = {2},
                    .data = values_}};
    const auto saved = SaveCheckpoint(args);
    EXPECT_TRUE(saved.ok()) << saved.status();
    return saved->digest;
  }
  std::string Path(int64_t step, const char* file, int64_t epoch = 1) const {
    return base::JoinPath(base::JoinPath(directory_, FolderName({step, epoch})), file);
  }
  // The base of step 100, saved in epoch 1 of the root.
  BaseQuery Query(const std::string& digest = "") const {
    return {.root = dir_.path(),
            .root_id = kRoot,
            .directory = directory_,
            .base = {.job_uid = kJob,
                     .step = 100,
                     .epoch = 1,
                     .digest = digest,
                     .root_id = kRoot,
                     .allow_older = false},
            .damaged = {}};
  }
  static void ExpectTaken(const BaseQuery& query, const CheckpointId& id, size_t damaged = 0) {
    const auto choice = ChooseByBase(query);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->load, id);
    EXPECT_EQ(choice->damaged.size(), damaged);
  }
  // Refused, with these words, and nothing is changed on disk.
  static void ExpectRefused(const BaseQuery& query, const std::vector<std::string>& words) {
    const auto before = Tree(query.root);
    const auto choice = ChooseByBase(query);
    ASSERT_FALSE(choice.ok()) << FolderName(choice->load);
    EXPECT_TRUE(absl::IsFailedPrecondition(choice.status())) << choice.status();
    for (const std::string& word : words)
      EXPECT_NE(base::Message(choice.status()).find(word), std::string::npos)
          << word << " in " << choice.status();
    EXPECT_EQ(Tree(query.root), before);
  }
  static std::vector<std::string> Tree(const std::string& root) {
    std::vector<std::string> out;
    if (!base::Exists(root)) return out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
      out.push_back(entry.path().string());
    std::sort(out.begin(), out.end());
    return out;
  }

  const double values_[2] = {1, 2};
  TempDir dir_;
  const std::string directory_ = dir_.File("ckpt");
};

TEST_F(ResumeBaseTest, AMissingRootIsRefused) {
  BaseQuery query = Query("xxh3:1");
  query.root = dir_.File("gone");
  query.directory = query.root + "/ckpt";
  ExpectRefused(query, {"step 100", "xxh3:1", query.root + " is missing", "--fresh"});
}

TEST_F(ResumeBaseTest, AMissingDirectoryIsRefused) {
  ExpectRefused(Query("xxh3:1"), {"step 100", "xxh3:1", "that folder is missing", directory_,
                                  "is the one in which it was saved"});
}

TEST_F(ResumeBaseTest, AnEmptyDirectoryIsRefused) {
  std::filesystem::create_directory(directory_);
  ExpectRefused(Query(), {"there is no intact one of the job"});
}

TEST_F(ResumeBaseTest, AnotherRootIsNamed) {
  std::filesystem::create_directory(directory_);
  BaseQuery query = Query();
  query.root_id = "root-b";
  ExpectRefused(query, {"this is another root", "id root-b", "id root-a"});
  query.root_id = "";
  ExpectRefused(query, {"this is another root", "without .megatrain-root", "id root-a"});
  query.base.root_id = "";
  query.root_id = "root-b";
  const Status unknown = ChooseByBase(query).status();
  EXPECT_EQ(base::Message(unknown).find("another root"), std::string::npos) << unknown;
}

TEST_F(ResumeBaseTest, OnlyOlderOnesAreRefusedAndTakenWhereThatIsAllowed) {
  Save(50);
  Save(99);
  BaseQuery query = Query();
  ExpectRefused(query, {"the newest one of the job there is of step 99", "--allow-older"});
  query.base.allow_older = true;
  ExpectTaken(query, {99, 1});
}

TEST_F(ResumeBaseTest, NothingIsNotAnOlderOne) {
  std::filesystem::create_directory(directory_);
  Save(200, 1, "job-2");
  BaseQuery query = Query();
  query.base.allow_older = true;
  ExpectRefused(query, {"1 of other jobs", "--fresh"});
}

TEST_F(ResumeBaseTest, TheBaseAndNewerOnesAreTaken) {
  const std::string digest = Save(100);
  ExpectTaken(Query(digest), {100, 1});
  ExpectTaken(Query(), {100, 1});
  Save(120);
  ExpectTaken(Query(digest), {120, 1});
}

// After a start further back, the newest one has a higher epoch and may have a lower step.
TEST_F(ResumeBaseTest, InItsRootALaterEpochIsNewerWhateverItsStep) {
  const std::string digest = Save(100);
  Save(60, 2);
  ExpectTaken(Query(digest), {60, 2});
  BaseQuery elsewhere = Query(digest);
  elsewhere.root_id = "root-b";
  ExpectRefused(elsewhere, {"of step 60", "this is another root"});
}

TEST_F(ResumeBaseTest, AnotherJobsCheckpointsDoNotCount) {
  Save(100, 1, "job-2");
  Save(300, 2, "job-2");
  ExpectRefused(Query("xxh3:1"), {"there is no intact one of the job", "2 of other jobs"});
  const std::string digest = Save(100, 3);
  Save(400, 4, "job-2");
  BaseQuery query = Query(digest);
  query.base.epoch = 3;
  ExpectTaken(query, {100, 3});
}

// A run's checkpoints count whichever job saved them, and those of the same job's other runs do
// not.
TEST_F(ResumeBaseTest, WhereTheRunIsKnownItsCheckpointsCount) {
  Save(100, 1, "job-0", kOneRun);
  Save(120, 2, kJob, kOneRun);
  Save(300, 3, kJob, kOtherRun);
  BaseQuery query = Query();
  query.base.run = kOneRun;
  ExpectTaken(query, {120, 2});
  query.base.run = kRunC;
  ExpectRefused(query, {"there is no intact one of the run", "3 of other runs"});
  // The list tells the run of those from before runs had ids; the job where it does not.
  Save(400, 4, "job-0");
  query.base.run = kOneRun;
  query.base.epoch = 2;
  ExpectTaken(query, {120, 2});
  RunRecord run;
  run.id = kOneRun;
  run.epochs = {{4, 4}};
  query.runs.runs = {run};
  ExpectTaken(query, {400, 4});
  Save(500, 5);
  ExpectTaken(query, {500, 5});
}

// A job that goes on from what an earlier one left reports that as its own.
TEST_F(ResumeBaseTest, TheBaseItselfCountsWhoeverSavedIt) {
  const std::string digest = Save(100, 1, "job-0");
  ExpectTaken(Query(digest), {100, 1});
}

TEST_F(ResumeBaseTest, AnotherOneOfTheSameStepIsRefused) {
  Save(50);
  const std::string here = Save(100);
  BaseQuery query = Query("xxh3:of-the-other-root");
  query.root_id = "root-b";
  ExpectRefused(query, {"xxh3:of-the-other-root", here, "this is another root"});
  query.base.allow_older = true;
  ExpectTaken(query, {100, 1});
}

// In its own root and folder it can only have been changed.
TEST_F(ResumeBaseTest, AManifestThatIsNotTheOneThatWasSavedIsDamage) {
  Save(50);
  Save(100);
  ExpectTaken(Query("xxh3:other"), {50, 1}, 1);
}

TEST_F(ResumeBaseTest, DamageOfEveryKindIsPassedOverAndSaid) {
  const std::string digest = Save(50);
  Save(100);
  const std::string shard = Path(100, "rank-00000.safetensors");
  const std::string manifest = Path(100, "manifest.json");
  const std::string whole = base::ReadFile(shard).value();
  const auto expect_said = [&](const std::string& word) {
    const auto choice = ChooseByBase(Query());
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->load, (CheckpointId{50, 1}));
    ASSERT_EQ(choice->damaged.size(), 1U);
    EXPECT_NE(choice->damaged[0].find("step-00000100-e0001: "), std::string::npos);
    EXPECT_NE(choice->damaged[0].find(word), std::string::npos) << choice->damaged[0];
  };
  std::filesystem::resize_file(shard, whole.size() - 1);
  expect_said("rank-00000.safetensors");
  std::filesystem::remove(shard);
  expect_said("rank-00000.safetensors");
  ASSERT_TRUE(base::WriteFileAtomic(shard, whole).ok());
  ExpectTaken(Query(), {100, 1});
  const std::string of_rank = Path(100, "rank-00000.json");
  const std::string slices = base::ReadFile(of_rank).value();
  std::string flipped = slices;
  flipped[slices.size() / 2] = static_cast<char>(flipped[slices.size() / 2] ^ 1);
  for (const std::string& damaged : {flipped, slices.substr(1), slices + " ", std::string()}) {
    ASSERT_TRUE(base::WriteFileAtomic(of_rank, damaged).ok());
    expect_said("rank-00000.json is damaged");
  }
  std::filesystem::remove(of_rank);
  expect_said("rank-00000.json is missing");
  ASSERT_TRUE(base::WriteFileAtomic(of_rank, slices).ok());
  ExpectTaken(Query(), {100, 1});
  const std::string text = base::ReadFile(manifest).value();
  for (const size_t bytes : {size_t{0}, text.size() / 2, text.size() - 2}) {
    ASSERT_TRUE(base::WriteFileAtomic(manifest, text.substr(0, bytes)).ok());
    expect_said("manifest.json");
  }
}

TEST_F(ResumeBaseTest, DamageThatLoadingFoundIsPassedOverOneByOne) {
  Save(40);
  Save(50);
  Save(100);
  BaseQuery query = Query();
  query.damaged[{100, 1}] = "weights/w is damaged";
  ExpectTaken(query, {50, 1}, 1);
  query.damaged[{50, 1}] = "so is this";
  ExpectTaken(query, {40, 1}, 2);
  query.damaged[{40, 1}] = "and this";
  ExpectRefused(query, {"weights/w is damaged", "so is this", "and this"});
}

// A damaged one below the base is no proof that the base was ever here.
TEST_F(ResumeBaseTest, DamageBelowTheBaseDoesNotStandForIt) {
  Save(50);
  Save(90);
  std::filesystem::resize_file(Path(90, "manifest.json"), 3);
  ExpectRefused(Query(), {"of step 50", "damaged: step-00000090-e0001"});
}

TEST_F(ResumeBaseTest, WhatCannotBeReadIsNotTakenForDamage) {
  Save(50);
  Save(100);
  // A folder in the manifest's place: reading it fails as a sick file server does.
  std::filesystem::remove(Path(100, "manifest.json"));
  std::filesystem::create_directory(Path(100, "manifest.json"));
  ExpectRefused(Query(), {"step-00000100-e0001 cannot be read"});
}

TEST_F(ResumeBaseTest, ARanksManifestThatCannotBeReadIsNotTakenForDamage) {
  Save(50);
  Save(100);
  std::filesystem::remove(Path(100, "rank-00000.json"));
  std::filesystem::create_directory(Path(100, "rank-00000.json"));
  ExpectRefused(Query(), {"step-00000100-e0001 cannot be read"});
}

TEST_F(ResumeBaseTest, ADamagedFenceDecidesNothing) {
  Save(100);
  std::ofstream(directory_ + "/FENCE") << "{}";
  ExpectRefused(Query(), {"FENCE"});
}

// The same answer every time, and no trace on disk.
TEST_F(ResumeBaseTest, BelowTheBaseItIsRefusedAHundredTimesOfAHundred) {
  for (int64_t step = 1; step <= 100; ++step) {
    BaseQuery query = Query("xxh3:1");
    query.base.step = 100 + step;
    if (step > 1) Save(step);
    ExpectRefused(query, {fmt::format("step {}", query.base.step)});
  }
}

// Whatever lies in the directory, as long as it is less than the base: 100 of 100 are refused (20
// under sanitizers).
TEST_F(ResumeBaseTest, NothingBelowTheBaseIsEverTaken) {
  std::mt19937 random(7);
  const auto pick = [&random](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int i = 0; i < (kSanitized ? 20 : 100); ++i) {
    std::filesystem::remove_all(directory_);
    for (int64_t n = pick(0, 3); n > 0; --n) {
      const CheckpointId id{pick(1, 99), 1};  // a later directory epoch would be newer
      if (!base::Exists(base::JoinPath(directory_, FolderName(id)))) Save(id.step, id.epoch);
    }
    // Another job's checkpoints are not this one's, however new.
    if (pick(0, 1) == 0) Save(pick(100, 300), 4, "job-2");
    // What was not finished is none.
    if (pick(0, 1) == 0)
      std::filesystem::create_directories(base::JoinPath(directory_, FolderName({200, 1})));
    ExpectRefused(Query(), {"step 100"});
  }
}

}  // namespace
}  // namespace mt::checkpoint
