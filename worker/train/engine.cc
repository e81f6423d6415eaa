#include "worker/train/engine.h"

#include <cstddef>
#include <limits>
#include <utility>

#include "common/base/math.h"
#include "worker/params/init.h"
#include "worker/train/failure.h"

namespace mt::train {
namespace {

using kernels::DType;
using kernels::EndOfStep;
using kernels::Tensor;

// The pairs of doubles that ops add to lie side by side in the vector.
static_assert(offsetof(EndOfStep, nonfinite) == offsetof(EndOfStep, sum_squares) + sizeof(double));
static_assert(offsetof(EndOfStep, tokens) == offsetof(EndOfStep, loss) + sizeof(double));
// So do the words of StepRing::Words.
static_assert(offsetof(EndOfStep, fault) == offsetof(EndOfStep, command) + sizeof(double));
static_assert(offsetof(EndOfStep, pipeline_wait) == offsetof(EndOfStep, fault) + sizeof(double));

// Loss and tokens of a rank without a result: far below what all other ranks' tokens can add up to.
constexpr double kSpoiledSums[2] = {0, -1e18};

Tensor PairAt(double* first) { return {first, DType::kF64, {2}}; }

}  // namespace

Engine::Engine(const Args& args)
    : args_(args),
      stream_(args.backend->device().CreateStream(kernels::StreamPriority::kLow)),
      phases_(&args.backend->device(), stream_.get(), args.clock),
      ring_(&args.backend->device()) {}

Engine::~Engine() { args_.groups->CloseLinks(); }

StatusOr<std::unique_ptr<Engine>> Engine::Create(const Args& args) {
  std::unique_ptr<Engine> engine(new Engine(args));
  RETURN_IF_ERROR(engine->Build());
  return engine;
}

Status Engine::Build() {
  const EngineConfig& config = args_.config;
  ASSIGN_OR_RETURN(StepSchedules schedules, StepSchedules::Create(config.schedule));
  schedules_ = std::make_unique<StepSchedules>(std::move(schedules));
  if (args_.groups->tp() != nullptr) {
    tensor_ = std::make_unique<parallel::TensorParallel>(args_.groups->tp(),
                                                         config.model.shard.sequence_parallel);
  }
  MakeModel();

  memory::MemoryPlan plan;
  store_->Plan(&plan);
  model_->PlanActivations(&plan);
  sync_->Plan(&plan);
  scalars_block_ = plan.Reserve(memory::Kind::kWorkspace, sizeof(kernels::StepScalars));
  vector_block_ = plan.Reserve(memory::Kind::kWorkspace, sizeof(EndOfStep));
  eval_block_ = plan.Reserve(memory::Kind::kWorkspace, 2 * sizeof(double));
  uncounted_block_ = plan.Reserve(memory::Kind::kWorkspace, 2 * sizeof(double));
  auto memory = memory::Memory::Allocate(device(), plan, args_.memory_limit_bytes);
  RETURN_IF_ERROR(WithCause(memory.status(), Cause::kOutOfMemory));
  memory_ = std::move(memory).value();
  store_->Bind(*memory_);
  model_->Bind(*memory_, *store_);
  sync_->Bind(*memory_);
  scalars_ = static_cast<kernels::StepScalars*>(memory_->Data(scalars_block_));
  vector_ = static_cast<EndOfStep*>(memory_->Data(vector_block_));
  eval_sums_ = PairAt(static_cast<double*>(memory_->Data(eval_block_)));
  uncounted_ = PairAt(static_cast<double*>(memory_->Data(uncounted_block_)));
  MakeParts();
  SetHooks();
  return OkStatus();
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
  model_ = std::make_unique<model::GptModel>(
      model::GptModel::Args{.config = config.model,
                            .chunks = chunks,
                            .max_microbatches = MicrobatchWindow(largest, config.stage),
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
  const RankGroups& groups = *args_.groups;
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

void Engine::Initialize(int64_t seed) {
  params::InitializeParams(
      *stream_,
      {.random = &args_.backend->random(), .vector = &args_.backend->vector(), .seed = seed},
      *store_);
  RestoreScalars(kernels::InitialStepScalars(args_.config.constants));
}

int64_t Engine::BatchOf(int64_t step) const {
  return args_.config.ramp.BatchOf(args_.config.ramp.SamplesAfter(step - 1));
}

// Tokens of weight zero: forward and backward run, loss and gradients are zero.
data::Microbatch Engine::EmptyMicrobatch() const {
  const model::GptConfig& config = args_.config.model;
  data::Microbatch batch;
  batch.s = config.seq;
  batch.b = config.micro_batch;
  const auto tokens = static_cast<size_t>(config.tokens());
  batch.tokens.assign(tokens, 0);
  batch.labels.assign(tokens, 0);
  batch.weights.assign(tokens, 0.0F);
  batch.samples.assign(static_cast<size_t>(config.micro_batch), -1);
  data::SortTokens(&batch);
  return batch;
}

const data::Microbatch& Engine::NextMicrobatch(data::Loader* loader, int64_t step) {
  if (fault_.ok()) {
    StatusOr<data::Microbatch> batch = loader->Next();
    if (batch.ok()) return ring_.Keep(std::move(batch).value());
    fault_ = WithCause(base::Annotate(batch.status(), fmt::format("step {}", step)),
                       batch.status().code() == absl::StatusCode::kDeadlineExceeded
                           ? Cause::kStorage
                           : CauseOf(batch.status()));
  }
  return ring_.Keep(EmptyMicrobatch());
}

Status Engine::RunStep(int64_t step, data::Loader* loader, double command) {
  kernels::StepConstants now = args_.config.constants;
  now.batch_samples = BatchOf(step);
  ring_.Begin(step);
  phases_.SetStep(step);
  recordings_->BeginStep();
  device().Zero(*stream_, vector_, sizeof(*vector_));
  RETURN_IF_ERROR(RunMicrobatches(step, loader, now));
  return FinishStep(step, command, now);
}

Status Engine::RunMicrobatches(int64_t step, data::Loader* loader,
                               const kernels::StepConstants& now) {
  const int microbatches =
      base::CheckedCast<int>(base::DivExact(now.batch_samples, args_.config.samples_per_round));
  ASSIGN_OR_RETURN(const schedule::Schedule* schedule, schedules_->OfStep(microbatches));
  work_->Begin({.microbatches = microbatches,
                .next = [&]() -> const data::Microbatch& { return NextMicrobatch(loader, step); },
                .training = true,
                .step = {.seed = 1.0 / now.nominal_tokens,
                         .scalars = scalars_,
                         .sums = counts_losses() ? PairAt(&vector_->loss) : uncounted_}});
  return executor_->Run(*schedule);
}

Status Engine::FinishStep(int64_t step, double command, const kernels::StepConstants& now) {
  phases_.Switch(StepPhase::kDpComm);
  RETURN_IF_ERROR(sync_->FinishGradients(*stream_, PairAt(&vector_->sum_squares)));
  StepRing::Words* words = ring_.words();
  words->command = command;
  words->fault = fault_.ok() ? 0 : 1;
  const pipeline::PassTimes& times = executor_->times();
  words->pipeline_wait = times.total > 0 ? times.wait() / times.total : 0;
  device().Copy(*stream_, &vector_->command, &words->command, 3 * sizeof(double));
  if (!fault_.ok()) {
    words->spoiled_loss = std::numeric_limits<double>::quiet_NaN();
    device().Copy(*stream_, &vector_->loss, &words->spoiled_loss, sizeof(double));
  }
  if (args_.end_of_step) args_.end_of_step(step, vector_);
  RETURN_IF_ERROR(sync_->ReduceEndOfStep(*stream_, vector_));
  phases_.Switch(StepPhase::kOptimizer);
  args_.backend->update().Advance(*stream_, scalars_, vector_, now);
  optimizer_->Update(*stream_, scalars_, sync_.get());
  phases_.EndStep(step);
  ring_.End(*stream_, vector_, scalars_);
  return sync_->status();
}

StatusOr<EndOfStep> Engine::RunIdle(double command) {
  EndOfStep sum{.command = command, .fault = fault_.ok() ? 0.0 : 1.0};
  if (args_.end_of_step) args_.end_of_step(0, &sum);
  device().Copy(*stream_, vector_, &sum, sizeof(sum));
  RETURN_IF_ERROR(sync_->ReduceEndOfStep(*stream_, vector_));
  device().Copy(*stream_, &sum, vector_, sizeof(sum));
  stream_->Synchronize();
  return sum;
}

Status Engine::BeginEvaluation() {
  device().Zero(*stream_, eval_sums_.data, eval_sums_.Bytes());
  return sync_->WaitAllWeights(*stream_);
}

Status Engine::EvaluatePass(int microbatches, const std::function<data::Microbatch()>& next) {
  const schedule::Schedule& schedule = schedules_->OfEvaluation(microbatches);
  CHECK_LE(MicrobatchWindow(schedule, args_.config.stage),
           MicrobatchWindow(schedules_->largest(), args_.config.stage));
  data::Microbatch batch;
  work_->Begin({.microbatches = microbatches,
                .next = [&]() -> const data::Microbatch& {
                  stream_->Synchronize();  // the last one has been copied
                  batch = next();
                  return batch;
                },
                .training = false,
                .sums = counts_losses() ? eval_sums_ : uncounted_});
  RETURN_IF_ERROR(executor_->Run(schedule));
  stream_->Synchronize();
  return OkStatus();
}

void Engine::SpoilEvaluation() {
  device().Copy(*stream_, eval_sums_.data, kSpoiledSums, sizeof(kSpoiledSums));
}

StatusOr<Engine::EvalSums> Engine::FinishEvaluation() {
  RETURN_IF_ERROR(sync_->SumDoubles(*stream_, eval_sums_));
  double sums[2] = {0, 0};
  device().Copy(*stream_, sums, eval_sums_.data, sizeof(sums));
  stream_->Synchronize();
  return EvalSums{.loss = sums[0], .tokens = sums[1]};
}

Status Engine::Synchronize() {
  RETURN_IF_ERROR(sync_->WaitAllWeights(*stream_));
  stream_->Synchronize();
  return OkStatus();
}

kernels::StepScalars Engine::ReadScalars() {
  kernels::StepScalars scalars;
  device().Copy(*stream_, &scalars, scalars_, sizeof(scalars));
  stream_->Synchronize();
  return scalars;
}

void Engine::RestoreScalars(const kernels::StepScalars& scalars) {
  device().Copy(*stream_, scalars_, &scalars, sizeof(scalars));
  stream_->Synchronize();
}

Status Engine::RebuildWeights() {
  params::RoundMaster(*stream_, args_.backend->vector(), *store_);
  RETURN_IF_ERROR(sync_->GatherAll(*stream_));
  stream_->Synchronize();
  return OkStatus();
}

}  // namespace mt::train
