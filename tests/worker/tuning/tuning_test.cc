// One table of choices for a job: what comes from the checkpoint, the disk and other ranks, who
// times the rest, and what is left behind for the next run. Tables are fakes.
#include "worker/tuning/tuning.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/tuning/fake_tuning.h"
#include "worker/comm/threads/hub.h"
#include "worker/failure/failure.h"
#include "worker/tuning/tuning_cache.h"

namespace mt::tuning {
namespace {

using Choices = std::map<std::string, std::string>;
using Timed = std::vector<std::string>;

class TuningTest : public ::testing::Test {
 protected:
  TuningTest() : backend_(kernels::cpu::MakeCpuBackend({.num_threads = 1}).value()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "mt-tuning-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  ~TuningTest() override { std::filesystem::remove_all(root_); }

  // All ranks settle at once, each with its table and, below root_, a cache of its own or a shared
  // one ("cache").
  std::vector<StatusOr<SettledTuning>> Settle(const std::vector<FakeTuning*>& tables,
                                              const TuningTables& stored = {},
                                              bool own_caches = false) {
    std::vector<StatusOr<SettledTuning>> results(tables.size(), absl::UnknownError("not run"));
    comm::ThreadsHub hub(comm::CommConfig{.op_timeout = std::chrono::seconds(20)});
    std::vector<int> members;
    for (size_t r = 0; r < tables.size(); ++r) members.push_back(static_cast<int>(r));
    const auto run = [&](size_t r) {
      const auto stream = backend_->device().CreateStream(kernels::StreamPriority::kLow);
      std::unique_ptr<comm::ProcessGroup> group;
      if (tables.size() > 1) {
        group = hub.Create({.name = "world", .members = members, .my_index = static_cast<int>(r)})
                    .value();
      }
      checkpoint::Exchange exchange(group.get(), stream.get());
      results[r] = SettleTuning({.table = tables[r],
                                 .exchange = &exchange,
                                 .cache_root = CacheRoot(own_caches ? r : 0),
                                 .stored = r == 0 ? stored : TuningTables{},
                                 .clock = base::Clock::Real(),
                                 .progress = [this] { ++progress_calls_; }});
    };
    std::vector<std::thread> threads;
    for (size_t r = 0; r < tables.size(); ++r) threads.emplace_back(run, r);
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  std::string CacheRoot(size_t rank) const {
    return base::JoinPath(root_, "cache" + std::to_string(rank));
  }

  std::string root_;
  std::atomic<int> progress_calls_ = 0;
  const std::unique_ptr<kernels::Backend> backend_;
};

TEST_F(TuningTest, WhatIsTimedOnceIsOnDiskForTheNextRun) {
  FakeTuning first("first");
  first.planned = {"a", "b"};
  const auto one = Settle({&first});
  ASSERT_TRUE(one[0].ok()) << one[0].status();
  EXPECT_EQ(first.timed, (Timed{"a", "b"}));
  EXPECT_EQ(one[0]->timed, 2);
  EXPECT_EQ(progress_calls_, 2);
  EXPECT_GE(one[0]->seconds, 0);
  EXPECT_EQ(one[0]->tables, (TuningTables{{"lib 1, card", {{"a", "first 1"}, {"b", "first 2"}}}}));

  FakeTuning second("second");
  second.planned = {"a", "b", "c"};
  const auto two = Settle({&second});
  ASSERT_TRUE(two[0].ok()) << two[0].status();
  EXPECT_EQ(second.timed, (Timed{"c"}));
  EXPECT_EQ(two[0]->from_cache, 2);
  EXPECT_EQ(two[0]->timed, 1);
  EXPECT_EQ(second.entries, (Choices{{"a", "first 1"}, {"b", "first 2"}, {"c", "second 1"}}));

  FakeTuning other("other", "lib 2, card");
  other.planned = {"a"};
  ASSERT_TRUE(Settle({&other})[0].ok());
  EXPECT_EQ(other.timed, (Timed{"a"})) << "another library's choices are another's";
}

TEST_F(TuningTest, DamagedCacheFilesAreIgnoredAndWrittenAnew) {
  const TuningCache cache(CacheRoot(0), "lib 1, card");
  for (const char* key : {"cut", "changed", "moved", "old"}) {
    ASSERT_TRUE(cache.Keep({key, "kept"}).ok());
  }
  const std::string text = base::ReadFile(cache.PathOf("cut")).value();
  std::string changed = base::ReadFile(cache.PathOf("changed")).value();
  changed.replace(changed.find("kept"), 4, "lept");
  std::string old = base::ReadFile(cache.PathOf("old")).value();
  old.replace(old.find("\"version\": 1"), 12, "\"version\": 0");
  const auto write = [&](const char* key, const std::string& content) {
    std::ofstream(cache.PathOf(key), std::ios::trunc) << content;
  };
  write("changed", changed);
  write("moved", text);
  write("old", old);
  write("cut", text.substr(0, text.size() / 2));

  FakeTuning table("new");
  table.planned = {"cut", "changed", "moved", "old"};
  ASSERT_TRUE(Settle({&table})[0].ok());
  EXPECT_EQ(table.timed, (Timed{"changed", "cut", "moved", "old"}));
  FakeTuning again("again");
  again.planned = table.planned;
  ASSERT_TRUE(Settle({&again})[0].ok());
  EXPECT_TRUE(again.timed.empty());
  EXPECT_EQ(again.entries, table.entries);
}

TEST_F(TuningTest, ACacheThatCannotBeWrittenIsNoFailure) {
  std::ofstream(CacheRoot(0)) << "a file where the folder would be";
  FakeTuning table("t");
  table.planned = {"a"};
  const auto settled = Settle({&table});
  ASSERT_TRUE(settled[0].ok()) << settled[0].status();
  EXPECT_EQ(table.entries, (Choices{{"a", "t 1"}}));
}

TEST_F(TuningTest, TheCheckpointComesBeforeTheCache) {
  FakeTuning before("before");
  before.planned = {"a", "b"};
  ASSERT_TRUE(Settle({&before})[0].ok());
  const TuningTables stored = {{"lib 1, card", {{"a", "saved"}, {"gone", "kept along"}}},
                               {"lib 1, other card", {{"a", "elsewhere"}}}};
  FakeTuning table("now");
  table.planned = {"a", "b", "c"};
  const auto settled = Settle({&table}, stored);
  ASSERT_TRUE(settled[0].ok()) << settled[0].status();
  EXPECT_EQ(settled[0]->from_checkpoint, 1);
  EXPECT_EQ(settled[0]->from_cache, 1);
  EXPECT_EQ(settled[0]->timed, 1);
  const Choices all = {{"a", "saved"}, {"b", "before 2"}, {"c", "now 1"}, {"gone", "kept along"}};
  EXPECT_EQ(table.entries, all);
  EXPECT_EQ(settled[0]->tables,
            (TuningTables{{"lib 1, card", all}, {"lib 1, other card", {{"a", "elsewhere"}}}}))
      << "the next checkpoint knows what the last one knew";
}

TEST_F(TuningTest, EachShapeIsTimedByTheFirstRankOfItsClass) {
  FakeTuning r0("r0"), r1("r1"), r2("r2"), r3("r3");
  r0.planned = r1.planned = {"body", "first"};
  r2.planned = r3.planned = {"body", "last"};
  const auto settled = Settle({&r0, &r1, &r2, &r3}, {}, /*own_caches=*/true);
  for (const auto& one : settled) {
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->tables, settled[0]->tables);
  }
  EXPECT_EQ(r0.timed, (Timed{"body", "first"}));
  EXPECT_TRUE(r1.timed.empty());
  EXPECT_EQ(r2.timed, (Timed{"last"}));
  EXPECT_TRUE(r3.timed.empty());
  const Choices all = {{"body", "r0 1"}, {"first", "r0 2"}, {"last", "r2 1"}};
  EXPECT_EQ(settled[3]->tables, (TuningTables{{"lib 1, card", all}}));
  for (const FakeTuning* table : {&r0, &r1, &r2, &r3}) EXPECT_EQ(table->entries, all);
  EXPECT_EQ(settled[1]->received, 2);
  EXPECT_EQ(settled[2]->received, 1);
  // Each node's disk has what its ranks run.
  const TuningCache disk(CacheRoot(3), "lib 1, card");
  EXPECT_EQ(disk.Find("body"), "r0 1");
  EXPECT_EQ(disk.Find("last"), "r2 1");
  EXPECT_EQ(disk.Find("first"), std::nullopt);
}

TEST_F(TuningTest, KindsOfDevicesDoNotMix) {
  FakeTuning r0("r0"), r1("r1", "lib 1, old card"), r2("r2");
  r0.planned = r1.planned = r2.planned = {"a"};
  const TuningTables stored = {{"lib 1, old card", {{"a", "saved"}}}};
  const auto settled = Settle({&r0, &r1, &r2}, stored);
  for (const auto& one : settled) ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(r0.entries, (Choices{{"a", "r0 1"}}));
  EXPECT_EQ(r1.entries, (Choices{{"a", "saved"}}));
  EXPECT_EQ(r2.entries, (Choices{{"a", "r0 1"}}));
  EXPECT_EQ(settled[2]->tables, (TuningTables{{"lib 1, card", {{"a", "r0 1"}}},
                                              {"lib 1, old card", {{"a", "saved"}}}}));
}

TEST_F(TuningTest, WhatTheLibraryRefusesIsTimedAnewForAll) {
  FakeTuning r0("r0", "lib 1, old card"), r1("r1"), r2("r2");
  r0.planned = {"z"};
  r1.planned = r2.planned = {"a", "b"};
  r1.refuses = r2.refuses = {"bad"};
  const TuningTables stored = {{"lib 1, card", {{"a", "bad"}, {"b", "good"}}}};
  const auto settled = Settle({&r0, &r1, &r2}, stored);
  for (const auto& one : settled) {
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->tables.at("lib 1, card"), (Choices{{"a", "r1 1"}, {"b", "good"}}));
  }
  EXPECT_EQ(r1.timed, (Timed{"a"}));
  EXPECT_TRUE(r2.timed.empty());
  EXPECT_EQ(r2.entries, (Choices{{"a", "r1 1"}, {"b", "good"}}));
}

TEST_F(TuningTest, NoMemoryForTimingEndsEveryRank) {
  FakeTuning r0("r0"), r1("r1");
  r0.planned = {"a"};
  r1.planned = {"b"};
  r1.out_of_memory = true;
  const auto settled = Settle({&r0, &r1});
  for (const auto& one : settled) {
    EXPECT_EQ(one.status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(failure::CauseOf(settled[1].status()), failure::Cause::kOutOfMemory);
  EXPECT_NE(base::Message(settled[0].status()).find("rank 1"), std::string::npos);
}

TEST_F(TuningTest, PlannedCallsRunOnceAllIsChosen) {
  FakeTuning table("r0");
  table.planned = {"a", "b"};
  table.entries = {{"a", "known"}};
  TunedBackend backend(backend_.get(), &table);
  ASSERT_TRUE(MakeReady(&backend).ok());
  EXPECT_EQ(table.timed, (Timed{"b"}));
  EXPECT_EQ(table.ran, (Timed{"a", "b"}));
}

TEST_F(TuningTest, NoMemoryToRunPlannedCallsIsSaid) {
  FakeTuning table("r0");
  table.no_room_to_run = true;
  TunedBackend backend(backend_.get(), &table);
  const Status status = MakeReady(&backend);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(failure::CauseOf(status), failure::Cause::kOutOfMemory);
}

TEST(TuningTablesTest, TextsComeBackAndDamageIsTold) {
  const TuningTables tables = {{"lib \"1\", card", {{"a", "x"}, {"b", ""}}}, {"other", {}}};
  const auto back = ParseTuningTables(ToJson(tables));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, tables);
  for (const char* bad : {"", "[]", "{}", R"({"version":2,"tables":[]})",
                          R"({"version":1,"tables":[{"identity":"i"}]})",
                          R"({"version":1,"tables":[{"identity":"i","choices":{"a":1}}]})",
                          R"({"version":1,"tables":[{"identity":7,"choices":{}}]})"}) {
    EXPECT_EQ(ParseTuningTables(bad).status().code(), absl::StatusCode::kDataLoss) << bad;
  }
}

}  // namespace
}  // namespace mt::tuning
