// Copies to a second directory: what is copied, tried again, replaced, refused and removed.
#include "worker/checkpoint/second_copy.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/checkpoint/tiny_checkpoint.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr minutes kLong{1};

class SecondCopyTest : public ::testing::Test {
 protected:
  std::unique_ptr<SecondCopy> Make(milliseconds retry = kLong) {
    SecondCopy::Args args{
        .from = from_, .to = to_, .epoch = 1, .retry_first = retry, .retry_cap = retry};
    args.report = [this](const SecondCopyResult& result) {
      base::MutexLock lock(&mu_);
      results_.push_back(result);
    };
    return std::make_unique<SecondCopy>(args);
  }
  std::vector<SecondCopyResult> results() {
    base::MutexLock lock(&mu_);
    return results_;
  }
  // Waits until so many tries are over.
  void Await(size_t tries) {
    const auto limit = std::chrono::steady_clock::now() + kLong;
    while (results().size() < tries && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(1));
    ASSERT_GE(results().size(), tries);
  }
  // Waits until the latest try was one that succeeded, behind which there is none.
  void AwaitSuccess() {
    const auto limit = std::chrono::steady_clock::now() + kLong;
    while (!results().back().status.ok() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(1));
    ASSERT_TRUE(results().back().status.ok()) << results().back().status;
  }
  static std::string Text(const std::string& directory, int64_t step, std::string_view file) {
    const auto text =
        base::ReadFile(base::JoinPath(base::JoinPath(directory, FolderName({step, 1})), file));
    return text.ok() ? *text : "cannot be read";
  }
  std::vector<int64_t> Copied() const {
    std::vector<int64_t> steps;
    const auto found = ListCheckpoints(to_);
    EXPECT_TRUE(found.ok()) << found.status();
    for (const CheckpointId& id : *found) steps.push_back(id.step);
    return steps;
  }

  TempDir dir_;
  const std::string from_ = dir_.path() + "/from", to_ = dir_.path() + "/deep/to";
  base::Mutex mu_;
  std::vector<SecondCopyResult> results_ GUARDED_BY(mu_);
};

TEST_F(SecondCopyTest, EachIsCopiedAndTheOldOnesArePruned) {
  const auto copy = Make();
  for (const int64_t step : {1, 2, 3}) {
    SaveTiny(from_, step, 1);
    copy->Add({step, 1}, {});
    ASSERT_TRUE(copy->WaitIdle(kLong));
  }
  const auto tries = results();
  ASSERT_EQ(tries.size(), 3U);
  for (const SecondCopyResult& result : tries) {
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_GT(result.bytes, 8);
  }
  EXPECT_EQ(Copied(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(Text(to_, 3, kManifestName), Text(from_, 3, kManifestName));
  EXPECT_EQ(copy->moved_bytes(), 2 * (tries[0].bytes + tries[1].bytes + tries[2].bytes))
      << "written, and read back";
}

TEST_F(SecondCopyTest, WhatIsPrunedMeanwhileIsNoFailure) {
  SaveTiny(from_, 2, 1);
  const auto copy = Make();
  copy->Add({1, 1}, {});
  ASSERT_TRUE(copy->WaitIdle(kLong));
  copy->Add({2, 1}, {});
  ASSERT_TRUE(copy->WaitIdle(kLong));
  ASSERT_EQ(results().size(), 1U) << "of the one that is there";
  EXPECT_TRUE(results()[0].status.ok()) << results()[0].status;
  // A removal that is under way.
  SaveTiny(from_, 4, 1);
  const std::string folder = base::JoinPath(from_, FolderName({4, 1}));
  ASSERT_TRUE(std::filesystem::remove(base::JoinPath(folder, kManifestName)));
  copy->Add({4, 1}, {});
  ASSERT_TRUE(copy->WaitIdle(kLong));
  EXPECT_EQ(results().size(), 1U);
  // The whole directory is gone: that is one.
  std::filesystem::rename(from_, from_ + "-gone");
  copy->Add({3, 1}, {});
  Await(2);
  EXPECT_FALSE(results()[1].status.ok());
}

TEST_F(SecondCopyTest, LossAndLabelFollow) {
  const auto copy = Make();
  SaveTiny(from_, 5, 1);
  copy->Add({5, 1}, {});
  ASSERT_TRUE(copy->WaitIdle(kLong));
  const std::string folder = base::JoinPath(from_, FolderName({5, 1}));
  ASSERT_TRUE(WriteEvaluation(folder, {.split = "valid", .step = 5, .loss = 2, .tokens = 7}).ok());
  ASSERT_TRUE(WriteLabel(from_, {5, 1}, {.tag = "best"}).ok());
  copy->Add({5, 1}, {});
  ASSERT_TRUE(copy->WaitIdle(kLong));
  EXPECT_EQ(Text(to_, 5, kEvaluationName), Text(from_, 5, kEvaluationName));
  EXPECT_EQ(Text(to_, 5, kLabelName), Text(from_, 5, kLabelName));
  ASSERT_EQ(results().size(), 2U);
  EXPECT_EQ(results()[1].bytes, 0) << "nothing is copied twice";
}

TEST_F(SecondCopyTest, AFailureIsTriedAgainWithTheNewest) {
  std::filesystem::create_directories(dir_.path() + "/deep");
  ASSERT_TRUE(base::WriteFileAtomic(to_, "a file is in the way").ok());
  const auto copy = Make(milliseconds(1));
  SaveTiny(from_, 1, 1);
  SaveTiny(from_, 2, 1);
  copy->Add({1, 1}, {});
  EXPECT_TRUE(copy->WaitIdle(kLong)) << "it has failed once";
  Await(2);
  for (const SecondCopyResult& result : results()) EXPECT_FALSE(result.status.ok());
  copy->Add({2, 1}, {});
  Await(results().size() + 2);
  std::filesystem::remove(to_);
  AwaitSuccess();
  EXPECT_EQ(results().back().id, (CheckpointId{2, 1}));
  ASSERT_TRUE(copy->WaitIdle(kLong));
  EXPECT_EQ(Copied(), std::vector<int64_t>{2});
}

TEST_F(SecondCopyTest, TheWaitBeforeATryDelaysNoEnd) {
  ASSERT_TRUE(base::MakeDirs(dir_.path() + "/deep").ok());
  ASSERT_TRUE(base::WriteFileAtomic(to_, "a file is in the way").ok());
  auto copy = Make(minutes(60));
  SaveTiny(from_, 1, 1);
  copy->Add({1, 1}, {});
  Await(1);
  copy.reset();
  EXPECT_EQ(results().size(), 1U);
}

TEST_F(SecondCopyTest, WhatACrashHasLeftIsReplaced) {
  SaveTiny(from_, 4, 1);
  const std::string left = base::JoinPath(to_, FolderName({4, 1}) + ".tmp");
  ASSERT_TRUE(base::MakeDirs(left).ok());
  ASSERT_TRUE(base::WriteFileAtomic(base::JoinPath(left, "rank-00000.safetensors"), "half").ok());
  const auto copy = Make();
  copy->Add({4, 1}, {});
  ASSERT_TRUE(copy->WaitIdle(kLong));
  EXPECT_EQ(Copied(), std::vector<int64_t>{4});
  EXPECT_FALSE(base::Exists(left));
}

// Pruning there is the run's own: what is not its copy is neither written over nor removed.
TEST_F(SecondCopyTest, WhatIsNotOfThisRunIsLeftAlone) {
  SaveTiny(from_, 4, 1);
  const auto refusal = [this] {
    const size_t before = results().size();
    const auto copy = Make();
    copy->Add({4, 1}, {});
    EXPECT_TRUE(copy->WaitIdle(kLong));
    EXPECT_EQ(results().size(), before + 1);
    EXPECT_EQ(results().back().status.code(), absl::StatusCode::kFailedPrecondition);
    return base::Message(results().back().status);
  };
  // Checkpoints that somebody saved or copied there.
  for (const int64_t step : {1, 2, 3}) SaveTiny(to_, step, 1);
  EXPECT_NE(refusal().find("no copies of this run's, such as step-00000003-e0001"),
            std::string::npos);
  EXPECT_EQ(Copied(), (std::vector<int64_t>{1, 2, 3}));
  // The copies of another run.
  std::filesystem::remove_all(to_);
  SaveTiny(dir_.File("other"), 9, 1);
  {
    SecondCopy other({.from = dir_.File("other"), .to = to_, .epoch = 1});
    other.Add({9, 1}, {});
    ASSERT_TRUE(other.WaitIdle(kLong));
  }
  EXPECT_NE(refusal().find("holds the copies of " + to_ + "/../../other"), std::string::npos)
      << refusal();
  EXPECT_EQ(Copied(), std::vector<int64_t>{9});
  ASSERT_TRUE(base::WriteFileAtomic(base::JoinPath(to_, kSecondMarkerName), "damaged").ok());
  EXPECT_NE(refusal().find("holds the copies of another directory"), std::string::npos);
}

// A run's own directory before its first save, and after: without the marker and with it.
TEST_F(SecondCopyTest, WhereARunSavesNothingIsCopiedOrRemoved) {
  for (const char* job : {"", "job-b"}) {
    std::filesystem::remove_all(dir_.path());
    SaveTiny(from_, 4, 1);
    SaveTiny(from_, 5, 1);
    const auto refusal = [this](int64_t step) {
      const auto copy = Make();
      copy->Add({step, 1}, {});
      EXPECT_TRUE(copy->WaitIdle(kLong));
      EXPECT_EQ(results().back().status.code(), absl::StatusCode::kFailedPrecondition);
      return base::Message(results().back().status);
    };
    const std::string whose = *job == '\0' ? "another run" : "the job with uid job-b";
    const std::string expected = to_ + " is where " + whose + " saves its checkpoints";
    ASSERT_TRUE(base::MakeDirs(to_).ok());
    ASSERT_TRUE(RaiseFence({.directory = to_, .job_uid = job, .epoch = 1}).ok());
    EXPECT_NE(refusal(4).find(expected), std::string::npos) << refusal(4);
    EXPECT_FALSE(base::Exists(base::JoinPath(to_, kSecondMarkerName)));
    // Copies were there before.
    std::filesystem::remove_all(to_);
    {
      const auto copy = Make();
      copy->Add({4, 1}, {});
      ASSERT_TRUE(copy->WaitIdle(kLong));
      ASSERT_TRUE(results().back().status.ok()) << results().back().status;
    }
    ASSERT_TRUE(RaiseFence({.directory = to_, .job_uid = job, .epoch = 1}).ok());
    for (const int64_t step : {1, 2, 3}) SaveTiny(to_, step, 1);
    EXPECT_NE(refusal(5).find(expected), std::string::npos) << refusal(5);
    EXPECT_EQ(Copied(), (std::vector<int64_t>{1, 2, 3, 4}));
  }
}

TEST_F(SecondCopyTest, BothDirectoriesMayMoveTogether) {
  SaveTiny(from_, 1, 1);
  {
    const auto copy = Make();
    copy->Add({1, 1}, {});
    ASSERT_TRUE(copy->WaitIdle(kLong));
  }
  const std::string moved = dir_.path() + "-moved";
  std::filesystem::rename(dir_.path(), moved);
  SaveTiny(moved + "/from", 2, 1);
  std::vector<Status> tries;
  {
    SecondCopy copy({.from = moved + "/from",
                     .to = moved + "/deep/to",
                     .epoch = 1,
                     .report = [&](const SecondCopyResult& one) { tries.push_back(one.status); }});
    copy.Add({2, 1}, {});
    ASSERT_TRUE(copy.WaitIdle(kLong));
  }
  std::filesystem::rename(moved, dir_.path());
  ASSERT_EQ(tries.size(), 1U);
  EXPECT_TRUE(tries[0].ok()) << tries[0];
  EXPECT_EQ(Copied(), (std::vector<int64_t>{1, 2}));
}

// Damage of the original is found as it is read back, and no copy is left.
TEST_F(SecondCopyTest, DamageIsNotCopied) {
  SaveTiny(from_, 4, 1);
  const std::string shard =
      base::JoinPath(base::JoinPath(from_, FolderName({4, 1})), "rank-00000.safetensors");
  std::string bytes = *base::ReadFile(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(shard, bytes).ok());
  const auto copy = Make();
  copy->Add({4, 1}, {});
  ASSERT_TRUE(copy->WaitIdle(kLong));
  ASSERT_EQ(results().size(), 1U);
  EXPECT_EQ(results()[0].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Copied().empty());
}

}  // namespace
}  // namespace mt::checkpoint
