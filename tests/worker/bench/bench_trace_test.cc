// The trace that a benchmark's report is added up from: which steps it has, its file against the
// report, and a file that cannot be written.
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/bench/bench_rig.h"
#include "worker/bench/bench_run.h"
#include "worker/train/trainer.h"

namespace mt::bench {
namespace {

namespace v1 = megatrain::v1;

TEST(BenchTrace, TheFirstMeasuredStepsAreTraced) {
  Rank rank_of_any;
  const auto steps = [&](const char* measured, int rank, const char* file, const char* replicas) {
    const v1::JobSpec job =
        BenchJob({"bench.warmup=3", std::string("bench.steps=") + measured,
                  std::string("parallel.data=") + replicas, "training.global_batch_size=8"});
    BenchRun bench({.job = &job,
                    .rank = rank,
                    .backend = rank_of_any.backend.get(),
                    .next = &rank_of_any.seen,
                    .trace_file = file});
    return bench.steps_to_trace();
  };
  const trace::TraceSteps many = steps("50", 0, "", "2");
  EXPECT_EQ(many.first, 4);
  EXPECT_EQ(many.last, 8);
  EXPECT_FALSE(many.every_call);
  EXPECT_EQ(steps("50", 1, "", "2").last, 8) << "every rank's";
  EXPECT_EQ(steps("3", 0, "", "2").last, 5) << "the run's last step hides no gathers";
  EXPECT_EQ(steps("1", 0, "", "2").last, 4) << "it has no other";
  EXPECT_TRUE(steps("50", 0, "", "1").empty()) << "one rank communicates nothing";
  EXPECT_FALSE(steps("50", 0, "t.json", "1").empty());
  EXPECT_TRUE(steps("50", 0, "t.json", "2").every_call);
}

// All ranks, no overlap within a stream, and sums that are the report's.
TEST(BenchTrace, ATraceHasWhatTheReportAddsUp) {
  const std::string file = testing::TempDir() + "mt-bench-trace-" + base::RandomHex(6) + ".json";
  const Seen seen =
      RunBench(BenchJob({"bench.warmup=1", "bench.steps=4", "parallel.tensor=2",
                         "parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=1",
                         "training.global_batch_size=8", "model.tie_embeddings=true"}),
               /*stopped=*/false, file);
  ASSERT_EQ(seen.reports.size(), 1U);
  const v1::BenchReport& report = seen.reports[0];
  const nlohmann::json trace = nlohmann::json::parse(base::ReadFile(file).value());
  std::remove(file.c_str());
  EXPECT_EQ(trace.at("otherData").at("first_step"), 2);
  EXPECT_EQ(trace.at("otherData").at("last_step"), 4);
  EXPECT_EQ(trace.at("otherData").at("spans_without_room"), 0);
  std::map<std::pair<int, int>, std::string> names;
  std::map<std::pair<int, int>, double> ends;  // of threads, in microseconds
  std::map<std::string, double> sums;          // of streams, in seconds
  std::map<std::pair<int, std::string>, double> phases;
  for (const auto& event : trace.at("traceEvents")) {
    const std::pair<int, int> thread = {event.at("pid"), event.at("tid")};
    if (event.at("name") == "thread_name") names[thread] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts"), length = event.at("dur");
    EXPECT_GE(begin, ends[thread] - 0.002) << names[thread] << " of rank " << thread.first;
    ends[thread] = begin + length;
    sums[names[thread]] += length / 1e6;
    if (names[thread] == "compute") phases[{thread.first, event.at("name")}] += length / 1e6;
  }
  std::map<std::string, std::set<int>> ranks;
  for (const auto& [thread, name] : names) ranks[name].insert(thread.first);
  EXPECT_EQ(ranks["compute"].size(), 8U) << "every rank";
  EXPECT_EQ(ranks["host"].size(), 8U);
  std::set<std::string> groups;
  for (const v1::GroupTime& group : report.groups()) {
    groups.insert(group.group());
    EXPECT_EQ(ranks[group.group()].size(), static_cast<size_t>(group.ranks())) << group.group();
    const double per_step = sums[group.group()] / 3 / group.ranks();
    EXPECT_NEAR(per_step, group.seconds(), 0.01 * group.seconds() + 1e-9) << group.group();
    EXPECT_NEAR(group.hidden_seconds() + group.exposed_seconds(), group.seconds(), 1e-9);
    EXPECT_GE(group.most_exposed_seconds(), group.exposed_seconds() - 1e-9);
  }
  EXPECT_EQ(groups, (std::set<std::string>{"tp", "tp-control", "pp-act 0>1", "pp-grad 1>0", "tied",
                                           "dp-reduce", "dp-gather", "control"}));
  // The phases of rank 0 against the records of the same steps.
  for (const char* phase : {"forward", "backward", "tp_comm", "pp_wait", "optimizer"}) {
    double recorded = 0;
    for (const v1::StepRecord& record : seen.steps) {
      if (record.step() < 2 || record.step() > 4) continue;
      const auto found = record.phase_seconds().find(phase);
      if (found != record.phase_seconds().end()) recorded += found->second;
    }
    EXPECT_NEAR((phases[{0, phase}]), recorded, 0.01 * recorded + 1e-6) << phase;
  }
  EXPECT_GT(report.bubble_by_formula(), 0);
  EXPECT_LT(report.bubble_by_formula(), 1);
}

TEST(BenchTrace, ATraceThatCannotBeWrittenIsAnErrorBesideTheReport) {
  const v1::JobSpec job = BenchJob({"bench.warmup=1", "bench.steps=2"});
  Rank rank;
  rank.groups = parallel::RankGroups::CreateForJob(job, 0, nullptr, nullptr).value();
  BenchRun bench({.job = &job,
                  .backend = rank.backend.get(),
                  .next = &rank.seen,
                  .product_seconds = 0.02,
                  .trace_file = "/proc/no/such/folder/trace.json"});
  const auto trainer = train::Trainer::Create({.job = &job,
                                               .groups = rank.groups.get(),
                                               .backend = bench.backend(),
                                               .observer = &bench,
                                               .trace = bench.steps_to_trace()})
                           .value();
  ASSERT_TRUE(trainer->Run().status.ok());
  const Status written = bench.Finish(OkStatus());
  EXPECT_FALSE(written.ok());
  EXPECT_NE(base::Message(written).find("/proc/no/such/folder"), std::string::npos) << written;
  EXPECT_EQ(rank.seen.reports.size(), 1U);
}

}  // namespace
}  // namespace mt::bench
