// The list of a directory's runs: every field comes back, damage is named and left alone, and what
// tells a run's own checkpoints from copies.
#include "worker/checkpoint/format/run_list.h"

#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/checkpoint/temp_dir.h"

namespace mt::checkpoint {
namespace {

using testing::HasSubstr;
using EpochRanges = std::vector<std::pair<int64_t, int64_t>>;

constexpr char kRunA[] = "11111111-1111-4111-8111-111111111111";
constexpr char kRunB[] = "22222222-2222-4222-9222-222222222222";

// With every field set.
RunRecord WholeRun() {
  return {.id = kRunA,
          .began = "2026-01-02T03:04:05Z",
          .job_uid = "u\"1",
          .job_name = "tiny",
          .beginning = {.load = "old/step-00000020-e0001",
                        .load_tag = "best",
                        .load_kind = "weights",
                        .fresh = true},
          .from = RunSource{.run = kRunB, .id = {.step = 20, .epoch = 1}, .digest = "xxh3:00"},
          .parent = kRunB,
          .restart = "token",
          .place = {.root_id = "root-a", .directory = "tiny", .path = "/ckpts/tiny"},
          .epochs = {{1, 3}, {7, 7}}};
}

TEST(RunListTest, EveryFieldComesBack) {
  RunRecord bare;
  bare.id = kRunB;
  const auto back = ParseRunList(ToJson({.runs = {WholeRun(), bare}}));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->runs.size(), 2U);
  const RunRecord& run = back->runs[0];
  const RunRecord want = WholeRun();
  EXPECT_EQ(run.id, want.id);
  EXPECT_EQ(run.began, want.began);
  EXPECT_EQ(run.job_uid, want.job_uid);
  EXPECT_EQ(run.job_name, want.job_name);
  EXPECT_EQ(run.beginning, want.beginning);
  EXPECT_EQ(run.from, want.from);
  EXPECT_EQ(run.parent, want.parent);
  EXPECT_EQ(run.restart, "token");
  EXPECT_EQ(run.place, want.place);
  EXPECT_EQ(run.epochs, want.epochs);
  EXPECT_EQ(back->runs[1].from, std::nullopt);
  EXPECT_EQ(back->runs[1].parent, "");
  EXPECT_FALSE(back->runs[1].beginning.named());
  EXPECT_TRUE(back->runs[1].epochs.empty());
  EXPECT_EQ(ToJson(*back), ToJson({.runs = {WholeRun(), bare}}));
}

TEST(RunListTest, DamageIsSaid) {
  const std::string whole = ToJson({.runs = {WholeRun()}});
  for (size_t n = 0; n + 2 < whole.size(); ++n)
    EXPECT_TRUE(absl::IsDataLoss(ParseRunList(whole.substr(0, n)).status())) << n;
  const auto with = [&whole](const std::string& from, const std::string& to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return ParseRunList(text).status();
  };
  EXPECT_TRUE(absl::IsDataLoss(with(kRunA, "run-1")));
  EXPECT_TRUE(absl::IsDataLoss(with(kRunB, "run-1")));
  EXPECT_TRUE(absl::IsDataLoss(with("   7,\n     7", "   3,\n     7"))) << "ranges overlap";
  EXPECT_TRUE(absl::IsDataLoss(with("   7,\n     7", "   7,\n     6")));
  EXPECT_TRUE(absl::IsDataLoss(with("   7,\n     7", "   7,\n     9223372036854775807")));
  EXPECT_TRUE(absl::IsDataLoss(with("\"version\": 1", "\"version\": 1.5")));
  EXPECT_TRUE(absl::IsFailedPrecondition(with("\"version\": 1", "\"version\": 2")));
  const Status twice = ParseRunList(ToJson({.runs = {WholeRun(), WholeRun()}})).status();
  EXPECT_TRUE(absl::IsDataLoss(twice));
  EXPECT_THAT(base::Message(twice), HasSubstr("twice"));
}

TEST(RunListTest, AFileThatCannotBeReadIsNamedAndStays) {
  const TempDir dir;
  EXPECT_TRUE(ReadRuns(dir.path())->runs.empty());
  const std::string path = dir.File("run.json");
  const std::string newer = "{\"format\": \"megatrain-runs\", \"version\": 9, \"runs\": []}";
  for (const std::string& text : {std::string("{"), newer}) {
    ASSERT_TRUE(base::WriteFileAtomic(path, text).ok());
    const Status status = ReadRuns(dir.path()).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(base::Message(status), HasSubstr(path));
    EXPECT_THAT(base::Message(status),
                HasSubstr(text == newer ? "use a newer Megatrain" : "move it away"));
    EXPECT_FALSE(KeepRun(dir.path(), WholeRun()).ok());
    EXPECT_EQ(base::ReadFile(path).value(), text);
  }
}

TEST(RunListTest, ARunIsKeptOnce) {
  const TempDir dir;
  ASSERT_TRUE(KeepRun(dir.path(), WholeRun()).ok());
  ASSERT_TRUE(KeepRun(dir.path(), WholeRun()).ok());
  RunRecord other = WholeRun();
  other.id = kRunB;
  ASSERT_TRUE(KeepRun(dir.path(), other).ok());
  const RunList list = ReadRuns(dir.path()).value();
  ASSERT_EQ(list.runs.size(), 2U);
  EXPECT_EQ(list.runs[1].id, kRunB);
}

TEST(RunListTest, EpochsAreRangesInOrder) {
  RunRecord run;
  for (const int64_t epoch : {5, 6, 9, 3, 6, 4, 10}) AddEpoch(epoch, &run);
  std::set<int64_t> epochs;
  int64_t last = 0;
  for (const auto& [first, end] : run.epochs) {
    EXPECT_GT(first, last);
    for (int64_t epoch = first; epoch <= end; ++epoch) epochs.insert(epoch);
    last = end;
  }
  EXPECT_EQ(epochs, (std::set<int64_t>{3, 4, 5, 6, 9, 10}));
  RunRecord straight;
  for (int64_t epoch = 1; epoch <= 100; ++epoch) AddEpoch(epoch, &straight);
  EXPECT_EQ(straight.epochs, (EpochRanges{{1, 100}}));
}

TEST(RunListTest, TheNewestRunOfAnEpochHasIt) {
  RunRecord a = WholeRun(), b = WholeRun();
  b.id = kRunB;
  b.epochs = {{3, 3}};
  const RunList list{.runs = {a, b}};
  EXPECT_EQ(RunOfEpoch(list, 1)->id, kRunA);
  EXPECT_EQ(RunOfEpoch(list, 3)->id, kRunB);
  EXPECT_EQ(RunOfEpoch(list, 4), nullptr);
  EXPECT_EQ(FindRun(list, kRunB), &list.runs[1]);
  EXPECT_EQ(FindRun(list, ""), nullptr);
  Manifest manifest;
  manifest.epoch = 2;
  EXPECT_EQ(RunOf(list, manifest), kRunA) << "from before runs had ids";
  manifest.run = kRunB;
  EXPECT_EQ(RunOf(list, manifest), kRunB);
  manifest.run.clear();
  manifest.epoch = 8;
  EXPECT_EQ(RunOf(list, manifest), "");
}

TEST(RunListTest, APlaceIsARootAndADirectoryOrWithoutIdsAPath) {
  const RunRecord run = WholeRun();
  EXPECT_TRUE(IsAt(run, {.root_id = "root-a", .directory = "tiny", .path = "/mnt/b/tiny"}));
  EXPECT_FALSE(IsAt(run, {.root_id = "root-b", .directory = "tiny", .path = "/ckpts/tiny"}));
  EXPECT_FALSE(IsAt(run, {.root_id = "root-a", .directory = "copy", .path = "/ckpts/copy"}));
  EXPECT_TRUE(IsAt(run, {.root_id = "", .directory = "tiny", .path = "/ckpts/tiny"}));
  EXPECT_FALSE(IsAt(run, {.root_id = "", .directory = "tiny", .path = "/other/tiny"}));
}

TEST(RunListTest, ABeginningIsTheTextOfAJobsFields) {
  EXPECT_FALSE(BeginningOf("{}").named());
  EXPECT_FALSE(BeginningOf("nonsense").named());
  EXPECT_FALSE(BeginningOf(R"({"checkpoint": {"fresh": false, "load_kind": "resume"}})").named());
  EXPECT_FALSE(BeginningOf(R"({"checkpoint": {"load": 7}})").named());
  const RunBeginning all = BeginningOf(
      R"({"checkpoint": {"load": "old", "load_tag": "best", "load_kind": "weights",
                         "fresh": true}})");
  EXPECT_EQ(all, (RunBeginning{
                     .load = "old", .load_tag = "best", .load_kind = "weights", .fresh = true}));
  EXPECT_EQ(TextOf(all), "load old, load_tag best, weights, fresh");
  EXPECT_EQ(TextOf({}), "nothing is named");
  for (const char* one : {R"({"load": "a"})", R"({"load_tag": "a"})", R"({"load_kind": "weights"})",
                          R"({"fresh": true})"}) {
    EXPECT_TRUE(BeginningOf(fmt::format(R"({{"checkpoint": {}}})", one)).named()) << one;
  }
}

}  // namespace
}  // namespace mt::checkpoint
