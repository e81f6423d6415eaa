// Tags of checkpoints: the file, how a tag moves, how a checkpoint is found by it, and that pruning
// spares what has one.
#include "worker/checkpoint/format/label.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/checkpoint/tiny_checkpoint.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

TEST(LabelTest, ComesBackWhateverItHolds) {
  for (const Label& label :
       {Label{.tag = "best", .meta = {}}, Label{.tag = "", .meta = {{"loss", "3.2"}}},
        Label{.tag = "v1.0_a-b",
        .meta = {{"note", "a \"b\"\n\x1b[31m \xC3\xA9"}, {"empty", ""}}}}) {
    const auto back = ParseLabel(ToJson(label));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, label);
  }
  EXPECT_TRUE(Label().empty());
  EXPECT_FALSE((Label{.tag = "", .meta = {{"k", "v"}}}.empty()));
}

TEST(LabelTest, DamageAndANewerVersionAreToldApart) {
  for (const char* bad :
       {"", "[]", "{}", "nonsense", "{\"format\":\"megatrain-pin\",\"version\":1}",
        "{\"format\":\"megatrain-tag\"}", "{\"format\":\"megatrain-tag\",\"version\":\"1\"}",
        "{\"format\":\"megatrain-tag\",\"version\":1,\"tag\":3,\"meta\":{}}",
        "{\"format\":\"megatrain-tag\",\"version\":1,\"tag\":\"a\"}",
        "{\"format\":\"megatrain-tag\",\"version\":1,\"tag\":\"a\",\"meta\":{\"k\":1}}"}) {
    EXPECT_EQ(ParseLabel(bad).status().code(), absl::StatusCode::kDataLoss) << bad;
  }
  const auto newer = ParseLabel("{\"format\":\"megatrain-tag\",\"version\":2}");
  EXPECT_EQ(newer.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::Message(newer.status()), HasSubstr("version 2"));
}

class LabelFileTest : public testing::Test {
 protected:
  std::string Save(int64_t step, int64_t epoch = 1) const {
    SaveTiny(dir_.path(), step, epoch);
    return Folder(step, epoch);
  }
  std::string Folder(int64_t step, int64_t epoch = 1) const {
    return dir_.File(FolderName({step, epoch}));
  }
  // The tag of that step; "" where it has no label.
  std::string TagOf(int64_t step, int64_t epoch = 1) const {
    const auto label = ReadLabel(Folder(step, epoch));
    EXPECT_TRUE(label.ok() || absl::IsNotFound(label.status())) << label.status();
    return label.ok() ? label->tag : "";
  }
  Status Tag(int64_t step, const std::string& tag, int64_t epoch = 1) const {
    return WriteLabel(dir_.path(), {step, epoch}, {.tag = tag, .meta = {}});
  }
  const TempDir dir_;
};

TEST_F(LabelFileTest, ACheckpointHasOneLabelOrNone) {
  const std::string folder = Save(1);
  EXPECT_FALSE(HasLabel(folder));
  EXPECT_TRUE(absl::IsNotFound(ReadLabel(folder).status()));
  EXPECT_TRUE(absl::IsNotFound(RemoveLabel(folder)));
  const Label label{.tag = "best", .meta = {{"loss", "3.2"}}};
  ASSERT_TRUE(WriteLabel(dir_.path(), {1, 1}, label).ok());
  EXPECT_TRUE(HasLabel(folder));
  EXPECT_EQ(*ReadLabel(folder), label);
  EXPECT_TRUE(ReadManifest(dir_.path(), {1, 1}).ok()) << "it is no part of the checkpoint";
  ASSERT_TRUE(WriteLabel(dir_.path(), {1, 1}, {.tag = "other", .meta = {}}).ok());
  EXPECT_EQ(*ReadLabel(folder), (Label{.tag = "other", .meta = {}})) << "the whole label is new";
  ASSERT_TRUE(RemoveLabel(folder).ok());
  EXPECT_FALSE(HasLabel(folder));
  const Status missing = Tag(7, "best");
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(base::Message(missing), HasSubstr("step-00000007-e0001"));
}

TEST_F(LabelFileTest, ALabelThatCannotBeReadIsThereAllTheSame) {
  const std::string folder = Save(1);
  std::ofstream(folder + "/TAG.json") << "{";
  EXPECT_TRUE(HasLabel(folder));
  EXPECT_TRUE(absl::IsDataLoss(ReadLabel(folder).status()));
  EXPECT_TRUE(HasLabel(folder + "/TAG.json")) << "what cannot be looked at";
  ASSERT_TRUE(Tag(1, "best").ok());
  EXPECT_EQ(TagOf(1), "best");
}

TEST_F(LabelFileTest, ATagMovesAndOthersStay) {
  for (const int64_t step : {1, 2, 3, 4}) Save(step);
  ASSERT_TRUE(Tag(1, "best").ok());
  ASSERT_TRUE(Tag(2, "paper").ok());
  ASSERT_TRUE(WriteLabel(dir_.path(), {3, 1}, {.tag = "", .meta = {{"k", "v"}}}).ok());
  ASSERT_TRUE(Tag(4, "best").ok());
  EXPECT_FALSE(HasLabel(Folder(1)));
  EXPECT_EQ(TagOf(2), "paper");
  EXPECT_EQ(ReadLabel(Folder(3))->meta.at("k"), "v");
  EXPECT_EQ(TagOf(4), "best");
  // Meta without a tag takes nothing from others.
  ASSERT_TRUE(WriteLabel(dir_.path(), {1, 1}, {.tag = "", .meta = {{"k", "w"}}}).ok());
  EXPECT_EQ(ReadLabel(Folder(3))->meta.at("k"), "v");
  // One that cannot be read is not known to have the tag.
  std::ofstream(Folder(2) + "/TAG.json") << "{";
  ASSERT_TRUE(Tag(3, "best").ok());
  EXPECT_TRUE(HasLabel(Folder(2)));
  EXPECT_FALSE(HasLabel(Folder(4)));
}

TEST_F(LabelFileTest, TheNewestOfATagIsFoundAndAMissingOneNamesWhatThereIs) {
  const Status none = FindByTag(dir_.path(), "best").status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  for (const int64_t step : {1, 2, 3}) Save(step);
  const Status untagged = FindByTag(dir_.path(), "best").status();
  EXPECT_TRUE(absl::IsNotFound(untagged));
  EXPECT_THAT(base::Message(untagged), EndsWith("there are: none"));
  ASSERT_TRUE(Tag(1, "paper").ok());
  ASSERT_TRUE(Tag(2, "best").ok());
  std::ofstream(Folder(3) + "/TAG.json") << "{";
  EXPECT_EQ(*FindByTag(dir_.path(), "best"), (CheckpointId{2, 1}));
  const Status other = FindByTag(dir_.path(), "bes").status();
  EXPECT_THAT(base::Message(other), HasSubstr("has the tag bes; there are: best, paper"));
  // A crash between the new label and the end of the old one leaves two: the newer is meant.
  Save(1, 2);
  std::filesystem::copy(Folder(2) + "/TAG.json", Folder(1, 2) + "/TAG.json");
  EXPECT_EQ(*FindByTag(dir_.path(), "best"), (CheckpointId{1, 2}));
  ASSERT_TRUE(Tag(1, "best", 2).ok());
  EXPECT_FALSE(HasLabel(Folder(2))) << "the next save with the tag clears up";
  // What is no checkpoint has no tag.
  std::filesystem::remove(Folder(1, 2) + "/manifest.json");
  EXPECT_TRUE(absl::IsNotFound(FindByTag(dir_.path(), "best").status()));
}

TEST_F(LabelFileTest, WhatHasALabelIsNotPruned) {
  for (int64_t step = 1; step <= 7; ++step) Save(step);
  ASSERT_TRUE(Tag(1, "best").ok());
  ASSERT_TRUE(WriteLabel(dir_.path(), {2, 1}, {.tag = "", .meta = {{"k", "v"}}}).ok());
  std::ofstream(Folder(3) + "/TAG.json") << "damaged";
  const PruneArgs args{.directory = dir_.path(), .rules = {.keep_last = 2}, .epoch = 1};
  const auto removed = PruneCheckpoints(args);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed, (std::vector<std::string>{FolderName({4, 1}), FolderName({5, 1})}));
  // The tag goes to a newer one: the older goes with the next.
  ASSERT_TRUE(Tag(7, "best").ok());
  EXPECT_EQ(*PruneCheckpoints(args), (std::vector<std::string>{FolderName({1, 1})}));
}

}  // namespace
}  // namespace mt::checkpoint
