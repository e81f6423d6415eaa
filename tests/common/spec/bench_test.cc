// Kind bench: it derives its own length, refuses settings without a meaning for it, and any job
// file can become one.
#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

constexpr std::string_view kBench = R"(
name: b
kind: bench
model: {layers: 2, hidden_size: 64, heads: 4, seq_length: 32, vocab_size: 500}
data: {mock: true}
training: {micro_batch_size: 4}
optimizer: {lr: 1e-3}
)";

std::string BenchFaults(const std::vector<std::string>& overrides, megatrain::v1::JobSpec* job) {
  return FormatFaults(LoadJob(kBench, overrides, {}, job));
}

TEST(Bench, RunsWarmupAndStepsAndSavesNothing) {
  megatrain::v1::JobSpec job;
  ASSERT_EQ(BenchFaults({"bench.steps=7"}, &job), "");
  EXPECT_EQ(TotalIterations(job), 17);
  EXPECT_EQ(CheckpointDirectory(job), "");
  // Completed again, as the coordinator and the rank do.
  EXPECT_EQ(FormatFaults(CompleteJob({}, &job)), "");
  EXPECT_EQ(TotalIterations(job), 17);
}

TEST(Bench, RefusesWhatItHasNoUseFor) {
  megatrain::v1::JobSpec job;
  EXPECT_EQ(
      BenchFaults({"training.train_iters=100"}, &job),
      "training.train_iters: a bench runs bench.warmup + bench.steps = 60 steps; leave it out");
  EXPECT_EQ(
      BenchFaults({"training.train_tokens=1M"}, &job),
      "training.train_tokens: a bench runs bench.warmup + bench.steps = 60 steps; leave it out");
  EXPECT_EQ(BenchFaults({"training.eval.every_iters=5", "training.exit_at_iter=9"}, &job),
            "training.eval.every_iters: a bench does not evaluate; leave it out\n"
            "training.exit_at_iter: a bench runs to its end; leave it out");
  EXPECT_EQ(BenchFaults({"training.eval.prompts=[a]"}, &job),
            "training.eval.prompts: a bench does not evaluate; leave it out");
  EXPECT_EQ(BenchFaults({"training.eval.decode_tokens=16"}, &job),
            "training.eval.decode_tokens: nobody asks a bench for texts; leave it out");
  EXPECT_EQ(BenchFaults({"training.exit_interval=9"}, &job),
            "training.exit_interval: a bench runs to its end; leave it out");
  EXPECT_EQ(BenchFaults({"checkpoint.directory=here", "checkpoint.every_iters=5"}, &job),
            "checkpoint.directory: a bench neither saves nor loads; leave it out\n"
            "checkpoint.every_iters: a bench neither saves nor loads; leave it out");
  EXPECT_EQ(BenchFaults({"bench.steps=0"}, &job), "bench.steps: must be at least 1, is 0");
}

TEST(Bench, RunsAtTheLastSizeOfARamp) {
  megatrain::v1::JobSpec job;
  EXPECT_EQ(BenchFaults({"training.batch_ramp=\"0:4 1K:8\""}, &job), "");
  EXPECT_FALSE(job.training().has_batch_ramp()) << "its steps are all alike";
  EXPECT_EQ(job.training().global_batch_size(), 8);
  EXPECT_EQ(FormatFaults(CompleteJob({}, &job)), "") << "completed once more";
  EXPECT_NE(BenchFaults({"training.batch_ramp=\"0:4 1K\""}, &job), "") << "no ramp";
}

TEST(Bench, ItsFieldsAreForItsKind) {
  EXPECT_EQ(FaultsOf({"bench.warmup=10", "bench.steps=50"}), "") << "the defaults";
  EXPECT_EQ(FaultsOf({"bench.steps=20"}), "bench.steps: 20 is for kind bench");
  EXPECT_EQ(FaultsOf({"bench.kernels=true"}), "bench.kernels: true is for kind bench");
}

TEST(Bench, AnyJobFileBecomesOne) {
  const std::vector<std::string> bench = BenchOverrides();
  std::vector<std::string> overrides = {
      "training.eval.every_iters=10",  "training.eval.prompts=[a, b]",
      "checkpoint.every_iters=10",     "checkpoint.directory=somewhere",
      "training.exit_after=1h",        "optimizer.decay=wsd",
      "optimizer.wsd.over=20%",        "optimizer.wsd.style=linear",
      "optimizer.warmup=70",           "optimizer.min_lr=1e-4",
      "training.eval.decode_tokens=16"};
  EXPECT_EQ(FaultsOf(overrides), "");
  overrides.insert(overrides.end(), bench.begin(), bench.end());
  overrides.emplace_back("bench.steps=2");
  const Loaded loaded = Load(overrides);
  EXPECT_EQ(FormatFaults(loaded.faults), "");
  EXPECT_EQ(loaded.job.kind(), megatrain::v1::JobSpec::KIND_BENCH);
  EXPECT_EQ(TotalIterations(loaded.job), 12);
  EXPECT_EQ(loaded.job.model().hidden_size(), 64);
  EXPECT_EQ(loaded.job.parallel().data(), 2);
  EXPECT_EQ(loaded.job.optimizer().decay(), megatrain::v1::Optimizer::DECAY_CONSTANT);
  EXPECT_EQ(loaded.job.training().eval().prompts_size(), 0);
}

}  // namespace
}  // namespace mt::spec
