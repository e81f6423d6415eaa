// A copy is whole and checked, or not there.
#include "worker/checkpoint/inspect/copy.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/inspect/diff.h"
#include "worker/checkpoint/inspect/saved_tokenizer.h"

namespace mt::checkpoint {
namespace {

using testing::HasSubstr;

class CopyTest : public testing::Test {
 protected:
  void SetUp() override { folder_ = SaveState(from_, MakeState(10), Cut::kRows); }
  StatusOr<std::string> Copy() const {
    return CopyCheckpoint({.from = PlaceOf(from_, {10, 1}), .to = to_, .threads = 2});
  }
  void ExpectRefused(absl::StatusCode code, const char* why) const {
    const Status status = Copy().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(base::Message(status), HasSubstr(why));
  }
  const TempDir dir_;
  const std::string from_ = dir_.File("from");
  const std::string to_ = dir_.File("archive/to");
  std::string folder_;
};

TEST_F(CopyTest, TheCopyIsTheCheckpointWithoutItsPin) {
  ASSERT_TRUE(WritePin(folder_, "mine").ok());
  ASSERT_TRUE(
      WriteEvaluation(folder_, {.split = "valid", .step = 10, .loss = 2, .bits_per_byte = 1.5})
          .ok());
  std::ofstream(folder_ + "/stray") << "x";
  int64_t last = 0, total = 0;
  const auto copy = CopyCheckpoint(
      {.from = PlaceOf(from_, {10, 1}), .to = to_, .progress = [&](int64_t done, int64_t all) {
         EXPECT_GE(done, last);
         last = done;
         total = all;
       }});
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(*copy, to_ + "/step-00000010-e0001");
  EXPECT_GT(last, 0);
  EXPECT_LE(last, total);
  EXPECT_EQ(*ListCheckpoints(to_), (std::vector<CheckpointId>{{10, 1}}));
  EXPECT_EQ(*base::ReadFile(*copy + "/manifest.json"), *base::ReadFile(folder_ + "/manifest.json"));
  EXPECT_EQ((*ReadEvaluation(*copy))->loss, 2);
  EXPECT_EQ((*ReadEvaluation(*copy))->bits_per_byte, 1.5);
  EXPECT_FALSE(IsPinned(*copy));
  EXPECT_FALSE(base::Exists(*copy + "/stray"));
  EXPECT_FALSE(base::Exists(*copy + ".tmp"));
  EXPECT_TRUE(Diff({.a = PlaceOf(from_, {10, 1}), .b = PlaceOf(to_, {10, 1})})->same_state);
  ExpectRefused(absl::StatusCode::kAlreadyExists, "is there already");
}

TEST_F(CopyTest, TheLabelGoesAlongAndItsTagIsTakenFromAnother) {
  const Label label{.tag = "best", .meta = {{"loss", "3.2"}}};
  ASSERT_TRUE(WriteLabel(from_, {10, 1}, label).ok());
  SaveState(to_, MakeState(5), Cut::kWhole);
  ASSERT_TRUE(WriteLabel(to_, {5, 1}, {.tag = "best", .meta = {}}).ok());
  const auto copy = Copy();
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(*ReadLabel(*copy), label);
  EXPECT_EQ(*ReadLabel(folder_), label);
  EXPECT_FALSE(HasLabel(to_ + "/step-00000005-e0001"));
  EXPECT_EQ(*FindByTag(to_, "best"), (CheckpointId{10, 1}));
  // One that cannot be read is copied as it is.
  std::ofstream(folder_ + "/TAG.json") << "{";
  const auto damaged = CopyCheckpoint({.from = PlaceOf(from_, {10, 1}), .to = dir_.File("other")});
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  EXPECT_EQ(*base::ReadFile(*damaged + "/TAG.json"), "{");
}

TEST_F(CopyTest, ADamagedOriginalLeavesNothing) {
  FlipBit(folder_ + "/rank-00001.safetensors", -1);
  ExpectRefused(absl::StatusCode::kDataLoss, "weights/norm[2:6]");
  EXPECT_FALSE(base::Exists(to_ + "/step-00000010-e0001"));
  EXPECT_FALSE(base::Exists(to_ + "/step-00000010-e0001.tmp"));
  std::filesystem::remove(folder_ + "/rank-00001.safetensors");
  ExpectRefused(absl::StatusCode::kNotFound, "rank-00001.safetensors");
  std::ofstream(folder_ + "/manifest.json") << "{";
  ExpectRefused(absl::StatusCode::kDataLoss, "manifest");
  EXPECT_TRUE(std::filesystem::is_empty(to_));
}

TEST_F(CopyTest, ACancelledCopyLeavesNothing) {
  int asked = 0;
  const auto copy =
      CopyCheckpoint({.from = PlaceOf(from_, {10, 1}), .to = to_, .is_cancelled = [&asked] {
                        return ++asked == 2;
                      }});
  EXPECT_EQ(copy.status().code(), absl::StatusCode::kCancelled) << copy.status();
  EXPECT_TRUE(std::filesystem::is_empty(to_));
}

TEST_F(CopyTest, OthersDirectoriesAreLeftAlone) {
  std::filesystem::create_directories(to_ + "/step-00000010-e0001.tmp");
  ExpectRefused(absl::StatusCode::kAlreadyExists, "another copy");
  std::filesystem::remove(to_ + "/step-00000010-e0001.tmp");
  // A standalone run's, in which an earlier epoch's checkpoint would not count.
  ASSERT_TRUE(RaiseFence({.directory = to_}).ok());
  ASSERT_TRUE(RaiseFence({.directory = to_}).ok());
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "would not count");
  ASSERT_TRUE(RaiseFence({.directory = to_, .job_uid = "u", .epoch = 1}).ok());
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "held by job u (epoch 1)");
}

TEST_F(CopyTest, TheTokenizersFilesGoAlong) {
  Manifest manifest = *ReadManifest(from_, {10, 1});
  EXPECT_FALSE(TokenizerOf(manifest).has_value());
  const SavedTokenizer tokenizer{.type = "hf", .digest = "0123456789abcdef0123456789abcdef"};
  PutTokenizer(tokenizer, &manifest);
  ASSERT_TRUE(base::WriteFileAtomic(folder_ + "/manifest.json", ToJson(manifest)).ok());
  const std::string name = "/tokenizer-0123456789abcdef0123456789abcdef";
  EXPECT_EQ("/" + FolderName(tokenizer), name);
  // Not there: nothing to take along.
  ASSERT_TRUE(CopyCheckpoint({.from = PlaceOf(from_, {10, 1}), .to = dir_.File("before")}).ok());
  EXPECT_FALSE(base::Exists(dir_.File("before") + name));
  std::filesystem::create_directory(from_ + name);
  std::ofstream(from_ + name + "/tokenizer.json") << "{}";
  const auto copy = Copy();
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(*base::ReadFile(to_ + name + "/tokenizer.json"), "{}");
  EXPECT_EQ(TokenizerOf(*ReadManifest(to_, {10, 1}))->digest, tokenizer.digest);
  EXPECT_EQ(*ListCheckpoints(to_), (std::vector<CheckpointId>{{10, 1}}));
  // What is no digest never becomes part of a path.
  manifest.facts[kTokenizerDigestFact] = "../../secret";
  EXPECT_FALSE(TokenizerOf(manifest).has_value());
}

}  // namespace
}  // namespace mt::checkpoint
