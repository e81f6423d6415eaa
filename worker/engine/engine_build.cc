// How an engine is made: its model, plan, memory and parts.
#include <algorithm>
#include <utility>

#include "common/base/math.h"
#include "worker/engine/engine.h"
#include "worker/failure/failure.h"
#include "worker/tuning/tuning.h"

namespace mt::engine {
namespace {

using kernels::DType;

// Microbatches on their way to a GPU: those of the steps that the host may have enqueued, or as
// many as keep it busy in any case.
constexpr int kMostStaged = 64;
// What the kernels of a GPU can do (kernels/cuda/README.md).
constexpr int64_t kLargestGpuHidden = 16384, kLargestGpuHead = 256;

Status CheckForGpu(const model::GptConfig& config) {
  if (config.dtype == DType::kF64) {
    return base::FailedPrecondition(
        "training.precision: fp64 runs on CPU slots only; use fp32 or bf16, or device cpu");
  }
  if (config.hidden > kLargestGpuHidden) {
    return base::FailedPrecondition("model.hidden_size: {}, on a GPU at most {}", config.hidden,
                                    kLargestGpuHidden);
  }
  if (config.head_dim > kLargestGpuHead) {
    return base::FailedPrecondition("model.head_dim: {}, on a GPU at most {}", config.head_dim,
                                    kLargestGpuHead);
  }
  return OkStatus();
}

kernels::Tensor PairIn(const memory::Memory& memory, const memory::Block& block) {
  return {memory.Data(block), DType::kF64, {2}};
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::Create(const Args& args) {
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, CreatePlanned(args));
  RETURN_IF_ERROR(engine->TakeMemory());
  return engine;
}

StatusOr<std::unique_ptr<Engine>> Engine::CreatePlanned(const Args& args) {
  std::unique_ptr<Engine> engine(new Engine(args));
  RETURN_IF_ERROR(engine->Plan());
  return engine;
}

Status Engine::Plan() {
  const EngineConfig& config = args_.config;
  if (device().kind() == kernels::DeviceKind::kCuda) RETURN_IF_ERROR(CheckForGpu(config.model));
  ASSIGN_OR_RETURN(StepSchedules schedules, StepSchedules::Create(config.schedule));
  schedules_ = std::make_unique<StepSchedules>(std::move(schedules));
  if (args_.groups->tp() != nullptr) {
    tensor_ = std::make_unique<parallel::TensorParallel>(args_.groups->tp(),
                                                         config.model.shard.sequence_parallel);
  }
  MakeModel();

  store_->Plan(&plan_);
  try {
    model_->PlanActivations(&plan_);
  } catch (const kernels::DeviceMemoryError& error) {
    return tuning::NoMemoryForChoices(error);
  }
  sync_->Plan(&plan_);
  scalars_block_ = plan_.Reserve(memory::Kind::kWorkspace, sizeof(kernels::StepScalars));
  vector_block_ = plan_.Reserve(memory::Kind::kWorkspace, sizeof(StepVector));
  eval_block_ = plan_.Reserve(memory::Kind::kWorkspace, 2 * sizeof(double));
  uncounted_block_ = plan_.Reserve(memory::Kind::kWorkspace, 2 * sizeof(double));
  if (device().kind() != kernels::DeviceKind::kCpu)
    staging_block_ = plan_.Reserve(memory::Kind::kPinned, memory::Staging::kBytes);
  return OkStatus();
}

Status Engine::TakeMemory() {
  RETURN_IF_ERROR(tuning::TimeMissing(args_.backend->tuning()));
  // Only now: choices have loaded kernels, which take device memory.
  int64_t limit_bytes = args_.memory_limit_bytes;
  if (limit_bytes == 0) {
    ASSIGN_OR_RETURN(limit_bytes, memory::AvailableBytes(device()));
  }
  auto memory = memory::Memory::Allocate(device(), plan_, limit_bytes);
  RETURN_IF_ERROR(failure::WithCause(memory.status(), failure::Cause::kOutOfMemory));
  memory_ = std::move(memory).value();
  Bind();
  MakeParts();
  SetHooks();
  return OkStatus();
}

void Engine::Bind() {
  store_->Bind(*memory_);
  model_->Bind(*memory_, *store_);
  sync_->Bind(*memory_);
  scalars_ = static_cast<kernels::StepScalars*>(memory_->Data(scalars_block_));
  vector_ = static_cast<StepVector*>(memory_->Data(vector_block_));
  eval_sums_ = PairIn(*memory_, eval_block_);
  uncounted_ = PairIn(*memory_, uncounted_block_);
  if (staging_block_.bytes > 0) {
    staging_ =
        std::make_unique<memory::Staging>(&device(), stream_.get(), memory_->Data(staging_block_));
  }
}

void Engine::MakeModel() {
  const EngineConfig& config = args_.config;
  const schedule::Schedule& largest = schedules_->largest();
  std::vector<model::GptModel::Chunk> chunks;
  chunks.reserve(config.chunks.size());
  for (const layout::ModelChunk& place : config.chunks) {
    chunks.push_back(
        {.place = place,
         .slots =
             largest.slots[static_cast<size_t>(config.stage)][static_cast<size_t>(place.chunk)]});
  }
  model_ = std::make_unique<model::GptModel>(model::GptModel::Args{
      .config = config.model,
      .chunks = chunks,
      .max_microbatches = MicrobatchWindow(largest, config.stage),
      .staged_microbatches =
          static_cast<int>(std::min<int64_t>(kMostStaged, StepRing::kSteps * largest.microbatches)),
      .accumulates = largest.microbatches > 1,
      .tensor = tensor_.get(),
      .backend = args_.backend,
      .stream = stream_.get()});
  model_->RegisterParams(&registry_);
  const DType accumulator = kernels::AccumulatorOf(config.model.dtype);
  layout_ = std::make_unique<params::FlatLayout>(params::FlatLayout::Args{
      .registry = &registry_,
      .dp_size = args_.groups->dp_size(),
      .min_bucket_elements = base::CeilDiv(config.bucket_bytes, kernels::SizeOf(accumulator))});
  store_ = std::make_unique<params::ParamStore>(&registry_, layout_.get(), config.model.dtype,
                                                config.share);
  // The first and the last stage share the table; elsewhere nothing is exchanged.
  params::ParamId tied_table = params::ParamId::kNone;
  if (args_.groups->tied() != nullptr) {
    tied_table = registry_.Find("embedding.word.weight").value_or(params::ParamId::kNone);
    CHECK(tied_table != params::ParamId::kNone) << "an end of the model without a word table";
  }
  sync_ = std::make_unique<parallel::GradientSync>(
      parallel::GradientSync::Args{.device = &device(),
                                   .update = &args_.backend->update(),
                                   .vector = &args_.backend->vector(),
                                   .store = store_.get(),
                                   .groups = SyncGroupsOfRank(),
                                   .tied_table = tied_table,
                                   .overlap_reduce = config.overlap_reduce,
                                   .overlap_gather = config.overlap_gather});
}

void Engine::MakeParts() {
  optimizer_ = std::make_unique<optim::Optimizer>(&args_.backend->update(), store_.get(),
                                                  args_.config.optimizer);
  recordings_ = std::make_unique<ActionRecordings>(
      ActionRecordings::Args{.device = &device(),
                             .stream = stream_.get(),
                             .phases = &phases_,
                             .enabled = args_.config.recordings});
  if (tensor_ != nullptr) {
    recordings_->Disable("the collectives of tensor ranks cannot be recorded");
  }
  work_ = std::make_unique<StageWork>(
      StageWork::Args{.model = model_.get(),
                      .tensor = tensor_.get(),
                      .sync = sync_.get(),
                      .stream = stream_.get(),
                      .phases = &phases_,
                      .recordings = recordings_.get(),
                      .window = MicrobatchWindow(schedules_->largest(), args_.config.stage)});
  const auto on_wait = [this, interrupted = StepPhase::kOther](bool begin) mutable {
    if (begin) {
      interrupted = phases_.Switch(StepPhase::kPpWait);
    } else {
      phases_.Switch(interrupted);
    }
  };
  const bool piped = args_.groups->pp_size() > 1;
  executor_ = std::make_unique<pipeline::Executor>(
      pipeline::Executor::Args{.stage = args_.config.stage,
                               .work = work_.get(),
                               .links = piped ? args_.groups->links() : nullptr,
                               .clock = args_.clock,
                               .on_wait = on_wait});
}

parallel::SyncGroups Engine::SyncGroupsOfRank() const {
  const parallel::RankGroups& groups = *args_.groups;
  return {.dp_reduce = groups.dp_reduce(),
          .dp_gather = groups.dp_gather(),
          .tensor = groups.tp_control(),
          .tied = groups.tied(),
          .world = groups.world()};
}

void Engine::SetHooks() {
  model::GptHooks hooks;
  hooks.on_phase = [this](model::Phase phase) {
    switch (phase) {
      case model::Phase::kForwardBegin:
        phases_.Switch(StepPhase::kForward);
        break;
      case model::Phase::kBackwardBegin:
        phases_.Switch(StepPhase::kBackward);
        break;
      case model::Phase::kForwardEnd:
      case model::Phase::kBackwardEnd:
        phases_.Switch(StepPhase::kOther);
        break;
    }
  };
  hooks.on_bucket_ready = [this](int bucket) {
    // An error sticks in sync_ and ends the step behind this action.
    if (sync_->dp_size() == 1) return sync_->BucketReady(*stream_, bucket);
    const StepPhase interrupted = phases_.Switch(StepPhase::kDpComm);
    sync_->BucketReady(*stream_, bucket);
    phases_.Switch(interrupted);
  };
  model_->SetHooks(std::move(hooks));
  if (tensor_ == nullptr) return;
  tensor_->SetOnCollective([this, interrupted = StepPhase::kOther](bool begin) mutable {
    if (begin) {
      interrupted = phases_.Switch(StepPhase::kTpComm);
    } else {
      phases_.Switch(interrupted);
    }
  });
}

}  // namespace mt::engine
