// Which checkpoints are kept: the choice as a table, and pruning with pins and losses on disk.
#include "worker/checkpoint/retention.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/checkpoint/tiny_checkpoint.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/format/verified.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::string what;
  RetentionRules rules;
  std::vector<StoredCheckpoint> all;
  std::vector<CheckpointId> doomed;
};

// Steps 100 to 600 of epoch 1, with the losses given.
std::vector<StoredCheckpoint> Six(const std::vector<std::optional<double>>& losses = {}) {
  std::vector<StoredCheckpoint> all;
  for (size_t i = 0; i < 6; ++i) {
    all.push_back({.id = {static_cast<int64_t>(i + 1) * 100, 1}});
    if (i < losses.size()) all.back().valid_loss = losses[i];
  }
  return all;
}

std::vector<StoredCheckpoint> Pinned(std::vector<StoredCheckpoint> all, size_t which) {
  all[which].pinned = true;
  return all;
}

std::vector<StoredCheckpoint> Verified(std::vector<StoredCheckpoint> all,
                                       const std::vector<size_t>& which) {
  for (const size_t one : which) all[one].verified = true;
  return all;
}

// The first ones are measured in this way, the rest in the other.
std::vector<StoredCheckpoint> Measured(std::vector<StoredCheckpoint> all, size_t first,
                                       const Measure& one, const Measure& other) {
  for (size_t i = 0; i < all.size(); ++i) all[i].measure = i < first ? one : other;
  return all;
}

std::vector<StoredCheckpoint> Spoiled(std::vector<StoredCheckpoint> all,
                                      const std::vector<size_t>& which) {
  for (const size_t one : which) all[one].spoiled = true;
  return all;
}

std::vector<CheckpointId> Steps(const std::vector<int64_t>& steps) {
  std::vector<CheckpointId> ids;
  for (const int64_t step : steps) ids.push_back({step, 1});
  return ids;
}

TEST(RetentionTest, TheChoice) {
  const std::vector<Case> cases = {
      {"nothing there", {}, {}, {}},
      {"one", {}, {{.id = {5, 1}}}, {}},
      {"the newest three", {.keep_last = 3}, Six(), Steps({100, 200, 300})},
      {"never fewer than two", {.keep_last = 0}, Six(), Steps({100, 200, 300, 400})},
      {"never fewer than two, of a negative number",
       {.keep_last = -7},
       Six(),
       Steps({100, 200, 300, 400})},
      {"more than there are", {.keep_last = 100}, Six(), {}},
      {"every 200", {.keep_every = 200}, Six(), Steps({100, 300})},
      {"every 1", {.keep_every = 1}, Six(), {}},
      {"every 0 is off", {.keep_every = 0}, Six(), Steps({100, 200, 300, 400})},
      {"the best one", {.keep_best = 1}, Six({3, 2, 4, 5, 1, 0}), Steps({100, 200, 300, 400})},
      {"the best three", {.keep_best = 3}, Six({3, 2, 4, 5, 1, 7}), Steps({300, 400})},
      {"of equal ones the newer",
       {.keep_best = 1},
       Six({2, 2, 2, 3, 9, 9}),
       Steps({100, 200, 400})},
      {"without a loss never the best",
       {.keep_best = 6},
       Six({std::nullopt, 5, std::nullopt, kNan}),
       Steps({100, 300, 400})},
      {"an infinite loss is one", {.keep_best = 1}, Six({INFINITY}), Steps({200, 300, 400})},
      {"the best of none", {.keep_best = 2}, Six(), Steps({100, 200, 300, 400})},
      {"the best of each measure",
       {.keep_best = 1},
       Measured(Six({3, 2, 9, 8, 9, 9}), 2, {.kind = "fixed", .samples = 80, .data = "a"},
                {.kind = "split", .samples = 0, .data = "a"}),
       Steps({100, 300})},
      {"other data are another measure",
       {.keep_best = 1},
       Measured(Six({3, 2, 9, 8, 9, 9}), 3, {.kind = "fixed", .samples = 80, .data = "a"},
                {.kind = "fixed", .samples = 80, .data = "b"}),
       Steps({100, 300})},
      {"what is not known is compared with its like",
       {.keep_best = 1},
       Measured(Six({3, 2, 9, 8, 9, 9}), 2, {}, {.kind = "rolling", .samples = 80, .data = "a"}),
       Steps({100, 300})},
      {"of one measure so many",
       {.keep_best = 2},
       Measured(Six({1, 2, 3, 4, 5, 6}), 6, {.kind = "rolling", .samples = 80, .data = "a"}, {}),
       Steps({300, 400})},
      {"a pin", {}, Pinned(Six(), 1), Steps({100, 300, 400})},
      {"of the verified ones the newest", {}, Verified(Six(), {0, 1, 2}), Steps({100, 200, 400})},
      {"a verified one among the newest keeps no other",
       {},
       Verified(Six(), {0, 5}),
       Steps({100, 200, 300, 400})},
      {"a base", {.base = CheckpointId{300, 1}}, Six(), Steps({100, 200, 400})},
      {"one that is read, of those that are there",
       {.steps = {200, 77}},
       Six(),
       Steps({100, 300, 400})},
      {"a base that is gone", {.base = CheckpointId{77, 1}}, Six(), Steps({100, 200, 300, 400})},
      {"rules add up",
       {.keep_every = 300, .keep_best = 1, .base = CheckpointId{400, 1}},
       Pinned(Six({9, 9, 9, 9, 1, 9}), 0),
       Steps({200})},
      {"spoiled ones are not among the two newest",
       {},
       Spoiled(Six(), {3, 4}),
       Steps({100, 200, 400, 500})},
      {"but the newest stays, too", {}, Spoiled(Six(), {3, 4, 5}), Steps({100, 400, 500})},
      {"spoiled ones take the places that are left",
       {.keep_last = 3},
       Spoiled(Six(), {0, 1, 2, 3, 4}),
       Steps({100, 200, 300})},
      {"where all are spoiled, the two newest",
       {},
       Spoiled(Six(), {0, 1, 2, 3, 4, 5}),
       Steps({100, 200, 300, 400})},
      {"a spoiled one is never the best",
       {.keep_best = 1},
       Spoiled(Six({2, 2, 3}), {1}),
       Steps({200, 300, 400})},
      {"by epoch, then step",
       {},
       {{.id = {900, 1}}, {.id = {100, 2}}, {.id = {50, 3}}, {.id = {800, 1}}},
       {{800, 1}, {900, 1}}},
      {"of a step in two epochs, both",
       {.keep_every = 100},
       {{.id = {100, 1}}, {.id = {100, 2}}, {.id = {150, 2}}, {.id = {160, 2}}, {.id = {170, 2}}},
       {{150, 2}}},
  };
  for (const Case& one : cases) EXPECT_EQ(ChooseDoomed(one.rules, one.all), one.doomed) << one.what;
}

class PruneRulesTest : public testing::Test {
 protected:
  void Save(int64_t step, int64_t epoch = 1, bool spoiled = false) const {
    SaveTiny(dir_.path(), step, epoch, {}, spoiled);
  }
  std::string Folder(int64_t step, int64_t epoch = 1) const {
    return dir_.File(FolderName({step, epoch}));
  }
  std::vector<int64_t> StepsOnDisk() const {
    std::vector<int64_t> steps;
    const auto all = ListCheckpoints(dir_.path());
    for (const CheckpointId& id : *all) steps.push_back(id.step);
    return steps;
  }
  const TempDir dir_;
};

TEST_F(PruneRulesTest, PinsAndLossesAreReadFromTheDisk) {
  for (int64_t step = 1; step <= 8; ++step) Save(step);
  ASSERT_TRUE(WritePin(Folder(1), "for the paper").ok());
  std::ofstream(Folder(2) + "/PINNED") << "not JSON";
  const auto evaluate = [&](int64_t step, double loss) {
    const Evaluation evaluation{.split = "valid", .step = step, .loss = loss, .tokens = 9};
    ASSERT_TRUE(WriteEvaluation(Folder(step), evaluation).ok());
  };
  evaluate(3, 1.5);
  evaluate(4, 1.25);
  evaluate(5, kNan);
  std::ofstream(Folder(6) + "/EVAL.json") << "{\"format\": \"megatrain-eval\", \"version\": 99}";
  const PruneArgs args{.directory = dir_.path(), .rules = {.keep_best = 1}, .epoch = 1};
  const auto removed = PruneCheckpoints(args);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed,
            (std::vector<std::string>{FolderName({3, 1}), FolderName({5, 1}), FolderName({6, 1})}));
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{1, 2, 4, 7, 8}));
  EXPECT_EQ(ReadPin(Folder(1))->reason, "for the paper");
  EXPECT_EQ(ReadPin(Folder(2))->reason, "");
  // What is not pinned any more goes with the next one.
  ASSERT_TRUE(RemovePin(Folder(1)).ok());
  EXPECT_TRUE(absl::IsNotFound(RemovePin(Folder(1))));
  ASSERT_TRUE(PruneCheckpoints(args).ok());
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{2, 4, 7, 8}));
}

TEST_F(PruneRulesTest, WhatIsReadIsAskedWhenTheChoiceIsMade) {
  for (int64_t step = 1; step <= 6; ++step) Save(step);
  std::vector<int64_t> read = {2, 9};
  const PruneArgs args{
      .directory = dir_.path(), .rules = {}, .epoch = 1, .kept_steps = [&read] { return read; }};
  ASSERT_TRUE(PruneCheckpoints(args).ok());
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{2, 5, 6}));
  read.clear();
  ASSERT_TRUE(PruneCheckpoints(args).ok());
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{5, 6}));
}

TEST_F(PruneRulesTest, WhatIsReadMeanwhileStays) {
  for (int64_t step = 1; step <= 6; ++step) Save(step);
  const auto kept_steps = [this] {  // step 3, once the first removal is done
    return base::Exists(Folder(1)) ? std::vector<int64_t>() : std::vector<int64_t>{3};
  };
  const auto removed = PruneCheckpoints(
      {.directory = dir_.path(), .rules = {}, .epoch = 1, .kept_steps = kept_steps});
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed,
            (std::vector<std::string>{FolderName({1, 1}), FolderName({2, 1}), FolderName({4, 1})}));
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{3, 5, 6}));
}

TEST_F(PruneRulesTest, ManifestsSayWhichAreSpoiled) {
  for (int64_t step = 1; step <= 3; ++step) Save(step);
  for (int64_t step = 4; step <= 7; ++step) Save(step, 1, /*spoiled=*/true);
  // One of a newer format may be as healthy as any.
  const std::string manifest = base::ReadFile(Folder(4) + "/manifest.json").value();
  ASSERT_NE(manifest.find("\"version\": "), std::string::npos) << manifest;
  std::string newer = manifest;
  newer.insert(newer.find("\"version\": ") + 11, "9");
  std::ofstream(Folder(4) + "/manifest.json") << newer;
  ASSERT_TRUE(absl::IsFailedPrecondition(ReadManifest(dir_.path(), {4, 1}).status()));
  ASSERT_TRUE(PruneCheckpoints({.directory = dir_.path(), .rules = {}, .epoch = 1}).ok());
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{3, 4, 7}));
  // From a damaged one nobody goes on.
  Save(8);
  std::ofstream(Folder(7) + "/manifest.json") << "{";
  std::ofstream(Folder(4) + "/manifest.json") << "{";
  ASSERT_TRUE(PruneCheckpoints({.directory = dir_.path(), .rules = {}, .epoch = 1}).ok());
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{3, 8}));
}

TEST_F(PruneRulesTest, TheNewestVerifiedOneAndTaggedOnesStay) {
  for (int64_t step = 1; step <= 6; ++step) Save(step);
  ASSERT_TRUE(WriteVerified(Folder(1)).ok());
  ASSERT_TRUE(WriteVerified(Folder(3)).ok());
  ASSERT_TRUE(WriteLabel(dir_.path(), {2, 1}, {.tag = "", .meta = {{"loss", "3"}}}).ok());
  const PruneArgs args{.directory = dir_.path(), .rules = {}, .epoch = 1};
  ASSERT_TRUE(PruneCheckpoints(args).ok());
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{2, 3, 5, 6}));
  EXPECT_FALSE(VerifiedAt(Folder(3)).empty());
  ASSERT_TRUE(RemoveVerified(Folder(3)).ok());
  ASSERT_TRUE(RemoveVerified(Folder(3)).ok()) << "again";
  ASSERT_TRUE(PruneCheckpoints(args).ok());
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{2, 5, 6}));
}

TEST_F(PruneRulesTest, APinnedFolderThatIsNoCheckpointStays) {
  Save(1);
  Save(2);
  std::filesystem::create_directories(Folder(3));
  std::filesystem::create_directories(Folder(4));
  std::filesystem::create_directories(Folder(5) + ".tmp");
  ASSERT_TRUE(WritePin(Folder(3), "").ok());
  ASSERT_TRUE(PruneCheckpoints({.directory = dir_.path(), .rules = {}, .epoch = 2}).ok());
  EXPECT_TRUE(base::Exists(Folder(3)));
  EXPECT_FALSE(base::Exists(Folder(4)));
  EXPECT_FALSE(base::Exists(Folder(5) + ".tmp"));
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{1, 2}));
}

TEST(EvaluationTest, ComesBackAndDamageIsToldApart) {
  const Evaluation written{.split = "valid", .step = 12, .loss = 0.1, .tokens = 77};
  const auto back = ParseEvaluation(ToJson(written));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->split, "valid");
  EXPECT_EQ(back->step, 12);
  EXPECT_EQ(back->loss, 0.1);
  EXPECT_EQ(back->tokens, 77);
  EXPECT_EQ(back->measure, Measure{}) << "as earlier versions have written it";
  EXPECT_EQ(ToJson(written).find("measure"), std::string::npos);
  const Measure measure{.kind = "fixed", .samples = 80, .data = "xxh3:0"};
  const auto measured =
      ParseEvaluation(ToJson({.split = "valid", .step = 12, .loss = 0.1, .measure = measure}));
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->measure, measure);
  const double nan = ParseEvaluation(ToJson({.split = "valid", .loss = kNan}))->loss;
  EXPECT_TRUE(std::isnan(nan));
  for (const char* bad : {"", "[]", "{}", "{\"format\":\"megatrain-eval\"}",
                          "{\"format\":\"megatrain-eval\",\"version\":1,\"split\":3}",
                          "{\"format\":\"megatrain-eval\",\"version\":1,\"split\":\"valid\","
                          "\"step\":1,\"loss\":1,\"tokens\":1,\"measure\":{\"kind\":3}}"}) {
    EXPECT_EQ(ParseEvaluation(bad).status().code(), absl::StatusCode::kDataLoss) << bad;
  }
  EXPECT_EQ(ParseEvaluation("{\"format\":\"megatrain-eval\",\"version\":2}").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace mt::checkpoint
