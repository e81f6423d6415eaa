// Jobs and runs on the GPU of this machine, and the reason to skip where there is none.
#include "tests/worker/train/gpu_rig.h"

#include <utility>

#include "common/base/files.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "kernels/cuda/module.h"

namespace mt::train {

using megatrain::v1::JobSpec;

namespace {

constexpr char kJob[] = R"(
name: tiny
data: {path: [text], split: "90,10,0", tokenizer: {type: byte}}
training: {micro_batch_size: 8, global_batch_size: 8, train_iters: 20, eval: {every_iters: 0}}
optimizer: {lr: 1e-3, min_lr: 1e-4, weight_decay: 0.1, clip_grad: 1.0}
checkpoint: {directory: none}
model: {layers: 4, hidden_size: 128, seq_length: 128, hidden_dropout: 0.1, attention_dropout: 0, )";

}  // namespace

JobSpec GpuJob(Where where, std::string_view model, const std::vector<std::string>& overrides) {
  const bool on_gpu = where == Where::kGpu;
  std::vector<std::string> fields = {std::string("placement.device=") + (on_gpu ? "gpu" : "cpu")};
  if (!on_gpu) fields.emplace_back("placement.threads_per_rank=4");
  const spec::ValidateContext context{.cuda = true};
  JobSpec job;
  spec::Faults faults =
      spec::LoadJob(kJob + std::string(model) + "}\n", Joined(fields, overrides), context, &job);
  if (faults.empty()) faults = spec::ResolveForSlots({.gpu = on_gpu}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

const StatusOr<std::unique_ptr<kernels::Backend>>& SharedGpu() {
  static const auto backend =
      new StatusOr<std::unique_ptr<kernels::Backend>>(kernels::cuda::LoadCudaBackend({}));
  return *backend;
}

void GpuTrainTest::SetUp() {
  if (!SharedGpu().ok()) GTEST_SKIP() << base::Message(SharedGpu().status());
  ASSERT_TRUE(base::MakeDirs(base::JoinPath(dir_.path(), "data")).ok());
  WriteTokens(base::JoinPath(dir_.path(), "data/text"), 2000);
}

RankOutcome GpuTrainTest::Run(const JobSpec& job, bool ends_well) {
  const bool on_gpu = job.placement().device() == megatrain::v1::Placement::DEVICE_GPU;
  RankOutcome outcome = std::move(RunJob(job, {.root = dir_.path(),
                                               .backend = on_gpu ? &gpu() : nullptr,
                                               .adjust = [this](int /*rank*/, TrainArgs* args) {
                                                 if (adjust_) adjust_(args);
                                               }})[0]);
  EXPECT_EQ(outcome.result.status.ok(), ends_well) << outcome.result.status;
  return outcome;
}

std::vector<std::string> SavesTo(const std::string& directory, int64_t every) {
  return {"checkpoint.directory=" + directory, fmt::format("checkpoint.every_iters={}", every)};
}

std::vector<std::string> Joined(std::vector<std::string> fields,
                                const std::vector<std::string>& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

}  // namespace mt::train
