// The jobs of the two model families, and the reading of a curve from the trainer's observer
// (threads) or a metrics file (processes).
#include "tests/worker/parity/curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/spec/derived.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "tests/compute_threads.h"
#include "tests/worker/parity/processes.h"
#include "worker/params/param_store.h"

namespace mt::parity {

using megatrain::v1::JobSpec;
using nlohmann::json;

namespace {

// 257 tokens are padded to 288, 320 and 384 rows on 1, 2 and 4 tensor ranks.
constexpr char kCommon[] = R"(
name: parity
data: {path: [text], split: "90,10,0", tokenizer: {type: byte}}
training: {micro_batch_size: 2, global_batch_size: 16, train_iters: 20,
           eval: {every_iters: 8, iters: 2}}
optimizer: {lr: 1e-3, min_lr: 1e-4, weight_decay: 0.1, clip_grad: 1.0}
checkpoint: {directory: none}
placement: {device: cpu, threads_per_rank: 1}
model: {layers: 8, hidden_size: 32, seq_length: 16, vocab_divisible_by: 32, hidden_dropout: 0.1,
        attention_dropout: 0.1, )";
constexpr char kGpt2Model[] = "heads: 4}\n";
constexpr char kLlamaModel[] = R"(heads: 8, kv_heads: 4, head_dim: 8, ffn_size: 64, position: rope,
        norm: rmsnorm, activation: swiglu, bias: false, tie_embeddings: false}
)";

std::vector<std::string> AllOverrides(const Layout& layout, std::string_view precision,
                                      const std::vector<std::string>& more) {
  std::vector<std::string> fields = OverridesOf(layout);
  fields.push_back(fmt::format("training.precision={}", precision));
  fields.push_back(fmt::format("placement.threads_per_rank={}", ComputeThreads()));
  // 8 samples a step for the first 32, then 16.
  if (layout.ramp) fields.emplace_back("training.batch_ramp=8,8,32");
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

void ExpectThreeBuckets(const params::ParamStore& store) {
  std::map<int, int> buckets, layers;
  for (const params::Bucket& bucket : store.layout().buckets()) ++buckets[bucket.chunk];
  for (const params::ParamSpec& param : store.registry().params()) {
    if (param.layer >= 0) ++layers[param.chunk];
  }
  for (const auto& [chunk, count] : layers) EXPECT_GE(buckets[chunk], 3) << "chunk " << chunk;
}

void CheckComplete(const Curve& curve, size_t num_steps) {
  EXPECT_EQ(curve.steps.size(), num_steps);
  for (const Point& point : curve.steps) {
    EXPECT_TRUE(std::isfinite(point.loss) && point.loss > 0) << "step " << point.step;
    EXPECT_TRUE(std::isfinite(point.grad_norm) && point.grad_norm > 0) << "step " << point.step;
  }
}

Curve CurveOf(const train::Observed& seen) {
  Curve curve;
  for (const megatrain::v1::StepRecord& step : seen.steps) {
    curve.steps.push_back({.step = step.step(),
                           .loss = step.loss(),
                           .grad_norm = step.grad_norm(),
                           .learning_rate = step.learning_rate(),
                           .tokens = step.tokens(),
                           .consumed_samples = step.consumed_samples(),
                           .model_flops = step.model_flops()});
  }
  for (const train::EvalRecord& eval : seen.evals) {
    curve.evals.push_back({.step = eval.step, .loss = eval.loss, .tokens = eval.tokens});
  }
  return curve;
}

bool IsClose(double got, double want, double bound) {
  return std::abs(got - want) <= bound * std::abs(want);
}

}  // namespace

std::string JobText(Family family) {
  return std::string(kCommon) + (family == Family::kGpt2 ? kGpt2Model : kLlamaModel);
}

Bounds BoundsOf(std::string_view precision) {
  if (precision == "fp64") return {.loss = 1e-12, .grad_norm = 1e-12};
  CHECK_EQ(precision, "fp32");
  return {.loss = 2e-6, .grad_norm = 3e-5};
}

Curve CurveOfLines(const std::string& lines) {
  Curve curve;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const json record = json::parse(line, nullptr, false);
    if (!record.is_object()) continue;
    if (record["kind"] == "step") {
      curve.steps.push_back({.step = record["step"],
                             .loss = record["loss"],
                             .grad_norm = record["grad_norm"],
                             .learning_rate = record["learning_rate"],
                             .tokens = record["tokens"],
                             .consumed_samples = record["consumed_samples"],
                             .model_flops = record["model_flops"]});
    } else if (record["kind"] == "eval") {
      curve.evals.push_back(
          {.step = record["step"], .loss = record["loss"], .tokens = record["tokens"]});
    }
  }
  return curve;
}

void ExpectClose(const Curve& got, const Curve& want, const Bounds& bounds) {
  ASSERT_EQ(got.steps.size(), want.steps.size());
  for (size_t i = 0; i < got.steps.size(); ++i) {
    const Point& a = got.steps[i];
    const Point& b = want.steps[i];
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.tokens, b.tokens) << "step " << b.step;
    EXPECT_EQ(a.consumed_samples, b.consumed_samples) << "step " << b.step;
    EXPECT_EQ(a.learning_rate, b.learning_rate) << "step " << b.step;
    EXPECT_EQ(a.model_flops, b.model_flops) << "step " << b.step;
    EXPECT_TRUE(IsClose(a.loss, b.loss, bounds.loss))
        << fmt::format("step {}: loss {:.17g}, alone {:.17g}: {:.2e} apart", b.step, a.loss, b.loss,
                       std::abs(a.loss / b.loss - 1));
    EXPECT_TRUE(IsClose(a.grad_norm, b.grad_norm, bounds.grad_norm))
        << fmt::format("step {}: gradient norm {:.17g}, alone {:.17g}: {:.2e} apart", b.step,
                       a.grad_norm, b.grad_norm, std::abs(a.grad_norm / b.grad_norm - 1));
  }
  ASSERT_EQ(got.evals.size(), want.evals.size());
  for (size_t i = 0; i < got.evals.size(); ++i) {
    const Evaluation& a = got.evals[i];
    const Evaluation& b = want.evals[i];
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.tokens, b.tokens) << "evaluation after step " << b.step;
    EXPECT_TRUE(IsClose(a.loss, b.loss, bounds.loss)) << fmt::format(
        "evaluation after step {}: loss {:.17g}, alone {:.17g}", b.step, a.loss, b.loss);
  }
}

Runner::Runner() {
  CHECK(base::MakeDirs(base::JoinPath(dir_.path(), "data")).ok());
  train::WriteTokens(base::JoinPath(dir_.path(), "data/text"), 200);
}

JobSpec Runner::JobOf(Family family, const std::vector<std::string>& overrides) {
  JobSpec job;
  spec::Faults faults = spec::LoadJob(JobText(family), overrides, {}, &job);
  if (faults.empty()) faults = spec::ResolveForSlots({}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

Curve Runner::Run(const Layout& layout, std::string_view precision,
                  const std::vector<std::string>& more) {
  const std::vector<std::string> fields = AllOverrides(layout, precision, more);
  if (layout.ranks == Ranks::kProcesses) {
    return RunProcesses(layout.family, fields, World(layout));
  }
  const JobSpec job = JobOf(layout.family, fields);
  return testing::Test::HasFatalFailure() ? Curve{} : RunThreads(job, {});
}

Curve Runner::RunOnDevices(const Layout& layout, std::string_view precision, const Devices& devices,
                           const std::vector<std::string>& more) {
  const JobSpec job = JobOf(layout.family, AllOverrides(layout, precision, more));
  return testing::Test::HasFatalFailure() ? Curve{} : RunThreads(job, devices);
}

Curve Runner::RunAlone(const Layout& layout, std::string_view precision,
                       const std::vector<std::string>& more) {
  return Run(Layout{.family = layout.family, .ramp = layout.ramp}, precision, more);
}

void Runner::ExpectBuckets(const Layout& layout) {
  const std::vector<std::string> fields =
      AllOverrides(layout, "fp32", {"training.train_iters=1", "training.eval.every_iters=0"});
  train::RunJob(JobOf(layout.family, fields),
                {.root = dir_.path(), .adjust = [](int /*rank*/, train::TrainArgs* args) {
                   args->after_step = [](int64_t /*step*/, const params::ParamStore& store) {
                     ExpectThreeBuckets(store);
                   };
                 }});
}

Curve Runner::RunThreads(const JobSpec& job, const Devices& devices) const {
  const std::vector<train::RankOutcome> outcomes =
      train::RunJob(job, {.root = dir_.path(),
                          .world = devices.world,
                          .async_kind = devices.kind,
                          .sharing = devices.sharing,
                          .adjust = [&devices](int /*rank*/, train::TrainArgs* args) {
                            args->tensor_copies.shard_products = devices.shard_products
                                                                     ? model::ShardProducts::kAlways
                                                                     : model::ShardProducts::kNever;
                          }});
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const train::TrainResult& result = outcomes[rank].result;
    EXPECT_TRUE(result.status.ok()) << "rank " << rank << ": " << result.status;
    EXPECT_TRUE(result.completed) << "rank " << rank;
  }
  Curve curve = CurveOf(outcomes[0].seen);
  CheckComplete(curve, static_cast<size_t>(spec::TotalIterations(job)));
  return curve;
}

Curve Runner::RunProcesses(Family family, const std::vector<std::string>& overrides, int world) {
  ProcessArgs args{.job_file = base::JoinPath(root(), "job.yaml"),
                   .overrides = overrides,
                   .world = world,
                   .root = root(),
                   .prefix = fmt::format("{}/run-{}", root(), num_runs_++)};
  CHECK(base::WriteFileAtomic(args.job_file, JobText(family)).ok());
  RankProcesses ranks(args);
  const int code = ranks.Wait();
  EXPECT_EQ(code, 0) << ranks.Errors();
  if (code != 0) return {};
  Curve curve = CurveOfLines(ranks.Metrics());
  CheckComplete(curve, kSteps);
  return curve;
}

}  // namespace mt::parity
