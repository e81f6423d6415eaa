// Each rank has a backend, groups and a trainer of its own.
#include "tests/worker/bench/bench_rig.h"

#include <thread>

#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/bench/bench_run.h"
#include "worker/comm/threads/hub.h"
#include "worker/train/trainer.h"

namespace mt::bench {

namespace v1 = megatrain::v1;

namespace {

void RunRank(const v1::JobSpec& job, int number, bool stopped, const std::string& trace_file,
             Rank* rank) {
  BenchRun bench({.job = &job,
                  .rank = number,
                  .backend = rank->backend.get(),
                  .world = rank->groups->world(),
                  .next = &rank->seen,
                  .product_seconds = 0.02,
                  .kernel_seconds = 0.001,
                  .large_kernel_seconds = 0.001,
                  .trace_file = trace_file});
  const auto trainer = train::Trainer::Create({.job = &job,
                                               .groups = rank->groups.get(),
                                               .backend = bench.backend(),
                                               .observer = &bench,
                                               .trace = bench.steps_to_trace()})
                           .value();
  const train::TrainResult result = trainer->Run();
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(bench.Finish(stopped ? base::Unavailable("stopped") : OkStatus()).ok());
}

}  // namespace

v1::JobSpec BenchJob(std::vector<std::string> overrides) {
  constexpr const char* kText = R"(
name: tiny
model: {layers: 2, hidden_size: 16, heads: 2, seq_length: 16, vocab_size: 300}
data: {mock: true}
training: {micro_batch_size: 2, global_batch_size: 6, train_iters: 1000, eval: {every_iters: 10}}
optimizer: {lr: 1e-3, warmup: 500}
checkpoint: {every_iters: 5}
placement: {device: cpu, threads_per_rank: 1}
)";
  const std::vector<std::string> bench = spec::BenchOverrides();
  overrides.insert(overrides.begin(), bench.begin(), bench.end());
  v1::JobSpec job;
  spec::Faults faults = spec::LoadJob(kText, overrides, {}, &job);
  EXPECT_EQ(spec::FormatFaults(faults), "");
  faults = spec::ResolveForSlots({}, &job);
  EXPECT_EQ(spec::FormatFaults(faults), "");
  return job;
}

Rank::Rank() : backend(kernels::cpu::MakeCpuBackend({.num_threads = 1}).value()) {}

Seen RunBench(const v1::JobSpec& job, bool stopped, const std::string& trace_file) {
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<Rank> ranks(static_cast<size_t>(spec::WorldSize(job)));
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (Rank& rank : ranks) {
    threads.emplace_back([&] {
      const auto number = static_cast<int>(&rank - ranks.data());
      rank.groups =
          parallel::RankGroups::CreateForJob(job, number, &hub, &rank.backend->device()).value();
      RunRank(job, number, stopped, trace_file, &rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 1; i < ranks.size(); ++i) EXPECT_TRUE(ranks[i].seen.reports.empty()) << i;
  return ranks[0].seen;
}

}  // namespace mt::bench
