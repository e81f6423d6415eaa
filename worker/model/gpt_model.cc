// One stage of all layers, its memory and its microbatches.
#include "worker/model/gpt_model.h"

#include <optional>

#include "common/base/check.h"

namespace mt::model {
namespace {

constexpr int64_t kHeadChunkTokensCpu = 1024;
constexpr int64_t kHeadChunkTokensGpu = 8192;

int64_t HeadChunkTokens(const GptConfig& config, kernels::Backend* backend) {
  if (config.head_chunk_tokens > 0) return config.head_chunk_tokens;
  return backend->device().kind() == kernels::DeviceKind::kCpu ? kHeadChunkTokensCpu
                                                               : kHeadChunkTokensGpu;
}

}  // namespace

GptModel::GptModel(const GptConfig& config, kernels::Backend* backend, kernels::Stream* stream)
    : config_((CheckConfig(config), config)),
      backend_(backend),
      stream_(stream),
      stage_(config, {.first_layer = 0,
                      .num_layers = config.layers,
                      .embedding = true,
                      .head = true,
                      .slots = 1,
                      .head_chunk_tokens = HeadChunkTokens(config, backend)}),
      batch_(config.seq, config.micro_batch),
      gradient_done_([this](params::ParamId id) { GradientDone(id); }) {}

void GptModel::RegisterParams(params::Registry* registry) { stage_.Register(registry); }

void GptModel::PlanActivations(memory::MemoryPlan* plan) {
  batch_.Plan(plan);
  auto kept = memory::StackArena::Measuring();
  stage_.TakeKept(&kept);
  kept_block_ = plan->Reserve(memory::Kind::kActivations, kept.peak_bytes());
  auto scratch = memory::StackArena::Measuring();
  stage_.TakeScratch(MakePass(), &scratch);
  scratch_block_ = plan->Reserve(memory::Kind::kWorkspace, scratch.peak_bytes());
}

void GptModel::Bind(const memory::Memory& memory, const params::ParamStore& store) {
  CHECK(store.weight_dtype() == config_.dtype);
  batch_.Bind(memory, backend_->device(), *stream_);
  stage_.Bind(store);
  memory::StackArena kept(memory.Data(kept_block_), kept_block_.bytes);
  stage_.TakeKept(&kept);
  memory::StackArena scratch(memory.Data(scratch_block_), scratch_block_.bytes);
  stage_.TakeScratch(MakePass(), &scratch);
  countdown_ = std::make_unique<params::BucketCountdown>(&store.layout());
}

void GptModel::ForwardBackward(const data::Microbatch& batch, const MicrobatchArgs& args) {
  CHECK(countdown_ != nullptr) << "Bind first";
  CHECK(args.scalars != nullptr);
  batch_.Load(batch, backend_->device(), *stream_);
  Pass pass = MakePass();
  pass.mode = args.mode;
  if (args.last) {
    countdown_->Reset();
    pass.gradient_done = &gradient_done_;
  }
  Report(Phase::kForwardBegin);
  stage_.Forward(pass, 0,
                 {.seed = args.seed, .loss_scale = &args.scalars->loss_scale, .sums = args.sums});
  Report(Phase::kForwardEnd);
  Report(Phase::kBackwardBegin);
  stage_.Backward(pass, 0);
  Report(Phase::kBackwardEnd);
  CHECK(!args.last || countdown_->AllDone()) << "a gradient was not written";
}

void GptModel::Evaluate(const data::Microbatch& batch, const kernels::Tensor& sums) {
  CHECK(countdown_ != nullptr) << "Bind first";
  batch_.Load(batch, backend_->device(), *stream_);
  Pass pass = MakePass();
  pass.training = false;
  stage_.Forward(pass, 0, {.sums = sums});
}

Pass GptModel::MakePass() const {
  return {.backend = backend_,
          .stream = stream_,
          .batch = &batch_.view(),
          .workspace = stage_.workspace()};
}

void GptModel::Report(Phase phase) const {
  if (hooks_.on_phase) hooks_.on_phase(phase);
}

void GptModel::GradientDone(params::ParamId id) {
  const std::optional<int> bucket = countdown_->MarkDone(id);
  if (bucket && hooks_.on_bucket_ready) hooks_.on_bucket_ready(*bucket);
}

}  // namespace mt::model
