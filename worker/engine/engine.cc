// An engine's making from its plan, its evaluations, and what is read and written between steps.
#include "worker/engine/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "worker/engine/phase_scope.h"
#include "worker/failure/failure.h"
#include "worker/params/init.h"
#include "worker/tuning/tuning.h"

namespace mt::engine {
namespace {

using kernels::DType;

// Loss and tokens of a rank without a result: far below what all other ranks' tokens can add up to.
constexpr double kSpoiledTokens = -1e18;

kernels::Tensor DoublesIn(const memory::Memory& memory, const memory::Block& block, int64_t n) {
  return {memory.Data(block), DType::kF64, {n}};
}

data::MicrobatchParts PartsOf(const EngineConfig& config) {
  data::MicrobatchParts parts{.inputs = false,
                              .labels = false,
                              .positions = config.model.reset_positions,
                              .position_order = config.model.sorts_positions()};
  for (const layout::ModelChunk& chunk : config.chunks) {
    parts.inputs = parts.inputs || chunk.has_embedding;
    parts.labels = parts.labels || chunk.has_head;
  }
  return parts;
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::Create(EnginePlan plan) {
  kernels::Device& device = plan.device();
  RETURN_IF_ERROR(tuning::MakeReady(plan.args_.backend));
  // Only now: choices have loaded kernels, which take device memory.
  int64_t limit_bytes = plan.args_.memory_limit_bytes;
  if (limit_bytes == 0) {
    ASSIGN_OR_RETURN(limit_bytes, memory::AvailableBytes(device));
  }
  auto memory = memory::Memory::Allocate(device, plan.memory_plan_, limit_bytes);
  RETURN_IF_ERROR(failure::WithCause(memory.status(), failure::Cause::kOutOfMemory));
  const std::vector<parallel::TensorRoutes::Call> calls = plan.TensorCalls();
  std::unique_ptr<Engine> engine(new Engine(std::move(plan), std::move(memory).value()));
  RETURN_IF_ERROR(engine->sync_->Share(*engine->memory_));
  if (engine->tensor_ == nullptr) return engine;
  parallel::TensorRoutes& routes = engine->tensor_->routes();
  RETURN_IF_ERROR(routes.Share(*engine->memory_));
  // What the clock says decides which products go by shards and which norms add terms in backward,
  // and so their last bits.
  const EngineConfig& config = engine->args_.config;
  if (config.tensor_copies.race && !config.model.deterministic) {
    RETURN_IF_ERROR(routes.Race(&device, calls, *engine->memory_));
  }
  return engine;
}

Engine::Engine(EnginePlan plan, std::unique_ptr<memory::Memory> memory)
    : args_(std::move(plan.args_)),
      microbatch_parts_(PartsOf(args_.config)),
      ramp_(args_.config.ramp),
      constants_(args_.config.constants),
      free_at_start_(plan.free_at_start_),
      stream_(std::move(plan.stream_)),
      phases_(std::move(plan.phases_)),
      tensor_(std::move(plan.tensor_)),
      schedules_(std::move(plan.schedules_)),
      registry_(std::move(plan.registry_)),
      layout_(std::move(plan.layout_)),
      store_(std::move(plan.store_)),
      model_(std::move(plan.model_)),
      memory_(std::move(memory)),
      sync_(std::move(plan.sync_)),
      ring_(&args_.backend->device()),
      pinned_(device().Allocate(sizeof(HostBlock), kernels::MemoryKind::kPinnedHost)),
      host_(new(pinned_->data()) HostBlock()),
      scalars_(static_cast<kernels::StepScalars*>(memory_->Data(plan.blocks_.scalars))),
      vector_(static_cast<StepVector*>(memory_->Data(plan.blocks_.vector))),
      eval_sums_(DoublesIn(*memory_, plan.blocks_.eval_sums, 3)),
      uncounted_(DoublesIn(*memory_, plan.blocks_.uncounted, 2)) {
  host_->spoiled[1] = kSpoiledTokens;
  store_->Bind(*memory_);
  model_->Bind(*memory_, *store_);
  sync_->Bind(*memory_);
  if (const memory::Block& block = plan.blocks_.staging; block.bytes > 0) {
    staging_ = std::make_unique<memory::Staging>(&device(), stream_.get(), memory_->Data(block));
  }
  if (const memory::Block& block = plan.blocks_.snapshot; block.bytes > 0)
    snapshot_ = std::make_unique<StateSnapshot>(&device(), store_.get(), memory_->Data(block));
  MakeParts();
  SetHooks();
}

Engine::~Engine() { args_.groups->LetGoOfMemory(); }

void Engine::MakeParts() {
  optimizer_ = std::make_unique<optim::Optimizer>(&args_.backend->update(), store_.get(),
                                                  args_.config.optimizer);
  recordings_ = std::make_unique<ActionRecordings>(
      ActionRecordings::Args{.device = &device(),
                             .stream = stream_.get(),
                             .phases = phases_.get(),
                             .enabled = args_.config.recordings});
  if (tensor_ != nullptr) {
    recordings_->Disable("the collectives of tensor ranks cannot be recorded");
  }
  work_ = std::make_unique<StageWork>(
      StageWork::Args{.model = model_.get(),
                      .tensor = tensor_.get(),
                      .sync = sync_.get(),
                      .stream = stream_.get(),
                      .phases = phases_.get(),
                      .recordings = recordings_.get(),
                      .window = MicrobatchWindow(schedules_->largest(), args_.config.stage)});
  const bool piped = axes().SizeOf(layout::kStageAxes) > 1;
  executor_ = std::make_unique<parallel::Executor>(
      parallel::Executor::Args{.stage = args_.config.stage,
                               .work = work_.get(),
                               .stream = stream_.get(),
                               .links = piped ? args_.groups->links() : nullptr,
                               .clock = args_.clock,
                               .on_wait = PhaseOfWaits(phases_.get(), StepPhase::kPpWait),
                               .spans = args_.spans});
}

void Engine::SetHooks() {
  model::GptHooks hooks;
  hooks.on_phase = [this](model::Phase phase) {
    switch (phase) {
      case model::Phase::kForwardBegin:
        phases_->Switch(StepPhase::kForward);
        break;
      case model::Phase::kBackwardBegin:
        phases_->Switch(StepPhase::kBackward);
        break;
      case model::Phase::kForwardEnd:
      case model::Phase::kBackwardEnd:
        phases_->Switch(StepPhase::kOther);
        break;
    }
  };
  hooks.on_bucket_ready = [this](int bucket) {
    // An error sticks in sync_ and ends the step behind this action.
    if (!sync_->has_replicas()) return sync_->BucketReady(*stream_, bucket);
    const PhaseScope waiting(phases_.get(), StepPhase::kDpComm);
    sync_->BucketReady(*stream_, bucket);
  };
  hooks.on_layer = [this](int chunk, int layer) {
    const PhaseScope waiting(phases_.get(), StepPhase::kDpComm);
    (void)sync_->WaitLayer(*stream_, chunk, layer);  // an error sticks, as above
  };
  model_->SetHooks(std::move(hooks));
  if (tensor_ != nullptr) {
    tensor_->SetOnCollective(PhaseOfWaits(phases_.get(), StepPhase::kTpComm));
  }
}

void Engine::Initialize(int64_t seed) {
  params::InitializeParams(
      *stream_,
      {.random = &args_.backend->random(), .vector = &args_.backend->vector(), .seed = seed},
      *store_);
  RestoreScalars(kernels::InitialStepScalars(constants_));
}

StatusOr<StepVector> Engine::RunIdle(double command_bits) {
  StepVector* const sum = &host_->vector;
  stream_->Synchronize();
  *sum = {.command_bits = command_bits, .fault = fault_.ok() ? 0.0 : 1.0};
  if (args_.end_of_step) args_.end_of_step(0, sum);
  device().Copy(*stream_, vector_, sum, sizeof(*sum));
  RETURN_IF_ERROR(sync_->ReduceEndOfStep(*stream_, AsTensor(vector_)));
  device().Copy(*stream_, sum, vector_, sizeof(*sum));
  RETURN_IF_ERROR(WaitForDevice());
  return *sum;
}

Status Engine::BeginEvaluation() {
  device().Zero(*stream_, eval_sums_.data, eval_sums_.Bytes());
  label_bytes_ = 0;
  return sync_->WaitAllWeights(*stream_);
}

Status Engine::EvaluatePass(int microbatches, const std::function<data::Microbatch()>& next) {
  const parallel::Schedule& schedule = schedules_->OfEvaluation(microbatches);
  CHECK_LE(MicrobatchWindow(schedule, args_.config.stage),
           MicrobatchWindow(schedules_->largest(), args_.config.stage));
  work_->Begin(
      {.microbatches = microbatches,
       .next = next,
       .label_bytes = counts_losses() ? &label_bytes_ : nullptr,
       .training = false,
       .sums = counts_losses() ? kernels::Tensor{eval_sums_.data, DType::kF64, {2}} : uncounted_});
  return executor_->Run(schedule);
}

void Engine::SpoilEvaluation() {
  device().Copy(*stream_, eval_sums_.data, host_->spoiled, sizeof(host_->spoiled));
}

StatusOr<Engine::EvalSums> Engine::FinishEvaluation() {
  host_->label_bytes = label_bytes_;
  device().Copy(*stream_, eval_sums_.Data<double>() + 2, &host_->label_bytes, sizeof(double));
  RETURN_IF_ERROR(sync_->SumDoubles(*stream_, eval_sums_));
  device().Copy(*stream_, host_->sums, eval_sums_.data, sizeof(host_->sums));
  RETURN_IF_ERROR(WaitForDevice());
  return EvalSums{.loss = host_->sums[0], .tokens = host_->sums[1], .label_bytes = host_->sums[2]};
}

Status Engine::Synchronize() {
  RETURN_IF_ERROR(sync_->WaitAllWeights(*stream_));
  return WaitForDevice();
}

Status Engine::WaitForDevice() {
  stream_->Synchronize();
  return args_.groups->device_status();
}

kernels::StepScalars Engine::ReadScalars() {
  device().Copy(*stream_, &host_->scalars, scalars_, sizeof(host_->scalars));
  stream_->Synchronize();
  return host_->scalars;
}

void Engine::RestoreScalars(const kernels::StepScalars& scalars) {
  stream_->Synchronize();
  host_->scalars = scalars;
  device().Copy(*stream_, scalars_, &host_->scalars, sizeof(scalars));
  stream_->Synchronize();
}

memory::BytesByKind Engine::MeasureMemory() {
  memory::BytesByKind bytes = memory_->Report();
  const int64_t on_device =
      memory::Total(bytes) - bytes[static_cast<size_t>(memory::Kind::kPinned)];
  bytes[static_cast<size_t>(memory::Kind::kLibraries)] =
      std::max<int64_t>(0, free_at_start_ - FreeBytes(device()) - on_device);
  for (size_t k = 0; k < bytes.size(); ++k) bytes[k] += memory_->taken()[k];
  return bytes;
}

Status Engine::RebuildWeights() {
  params::RoundMaster(*stream_, args_.backend->vector(), *store_);
  RETURN_IF_ERROR(sync_->GatherAll(*stream_));
  return WaitForDevice();
}

}  // namespace mt::engine
