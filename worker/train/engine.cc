#include "worker/train/engine.h"

#include <cstddef>
#include <limits>
#include <utility>

#include "worker/params/init.h"
#include "worker/train/failure.h"

namespace mt::train {
namespace {

using kernels::DType;
using kernels::EndOfStep;
using kernels::GradMode;
using kernels::Tensor;

// The pairs of doubles that ops add to lie side by side in the vector.
static_assert(offsetof(EndOfStep, nonfinite) == offsetof(EndOfStep, sum_squares) + sizeof(double));
static_assert(offsetof(EndOfStep, tokens) == offsetof(EndOfStep, loss) + sizeof(double));
static_assert(offsetof(EndOfStep, fault) == offsetof(EndOfStep, command) + sizeof(double));

// Loss and tokens of a rank without a result: far below what all other ranks' tokens can add up to.
constexpr double kSpoiledSums[2] = {0, -1e18};

Tensor PairAt(double* first) { return {first, DType::kF64, {2}}; }

// Tokens of weight zero: forward and backward run, loss and gradients are zero.
data::Microbatch EmptyMicrobatch(const model::GptConfig& config) {
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

}  // namespace

Engine::Engine(const Args& args)
    : args_(args),
      stream_(args.backend->device().CreateStream(kernels::StreamPriority::kLow)),
      data_parallel_(args.group),
      ring_(&args.backend->device()) {}

StatusOr<std::unique_ptr<Engine>> Engine::Create(const Args& args) {
  std::unique_ptr<Engine> engine(new Engine(args));
  RETURN_IF_ERROR(WithCause(engine->Build(), Cause::kOutOfMemory));
  return engine;
}

Status Engine::Build() {
  model_ = std::make_unique<model::GptModel>(args_.model, args_.backend, stream_.get());
  model_->RegisterParams(&registry_);
  const DType accumulator = kernels::AccumulatorOf(args_.model.dtype);
  layout_ = std::make_unique<params::FlatLayout>(params::FlatLayout::Args{
      .registry = &registry_,
      .dp_size = data_parallel_.size(),
      .min_bucket_elements = params::kMinBucketBytes / kernels::SizeOf(accumulator)});
  store_ = std::make_unique<params::ParamStore>(&registry_, layout_.get(), args_.model.dtype);

  memory::MemoryPlan plan;
  store_->Plan(&plan);
  model_->PlanActivations(&plan);
  scalars_block_ = plan.Reserve(memory::Kind::kWorkspace, sizeof(kernels::StepScalars));
  vector_block_ = plan.Reserve(memory::Kind::kWorkspace, sizeof(EndOfStep));
  eval_block_ = plan.Reserve(memory::Kind::kWorkspace, 2 * sizeof(double));
  ASSIGN_OR_RETURN(memory_, memory::Memory::Allocate(device(), plan, args_.memory_limit_bytes));
  store_->Bind(*memory_);
  model_->Bind(*memory_, *store_);
  scalars_ = static_cast<kernels::StepScalars*>(memory_->Data(scalars_block_));
  vector_ = static_cast<EndOfStep*>(memory_->Data(vector_block_));
  eval_sums_ = PairAt(static_cast<double*>(memory_->Data(eval_block_)));
  optimizer_ =
      std::make_unique<optim::Optimizer>(&args_.backend->update(), store_.get(), args_.adam);
  SetHooks();
  return OkStatus();
}

void Engine::SetHooks() {
  model::GptHooks hooks;
  hooks.on_phase = [this](model::Phase phase) {
    switch (phase) {
      case model::Phase::kForwardBegin:
        args_.phases->Switch(StepPhase::kForward);
        break;
      case model::Phase::kBackwardBegin:
        args_.phases->Switch(StepPhase::kBackward);
        break;
      case model::Phase::kForwardEnd:
      case model::Phase::kBackwardEnd:
        args_.phases->Switch(StepPhase::kOther);
        break;
    }
  };
  hooks.on_bucket_ready = [this](int bucket) {
    const StepPhase interrupted = args_.phases->Switch(StepPhase::kDpComm);
    // An error sticks in data_parallel_ and ends the step behind this backward.
    (void)data_parallel_.ReduceBucket(*stream_, *store_, bucket);
    args_.phases->Switch(StepPhase::kOptimizer);
    optimizer_->SquareSum(*stream_, bucket, data_parallel_.rank(), PairAt(&vector_->sum_squares));
    args_.phases->Switch(interrupted);
  };
  model_->SetHooks(std::move(hooks));
}

void Engine::Initialize(int64_t seed) {
  params::InitializeParams(
      *stream_,
      {.random = &args_.backend->random(), .vector = &args_.backend->vector(), .seed = seed},
      *store_);
  RestoreScalars(kernels::InitialStepScalars(args_.constants));
}

const data::Microbatch& Engine::NextMicrobatch(data::Loader* loader, int64_t step) {
  args_.phases->Switch(StepPhase::kData);
  if (fault_.ok()) {
    StatusOr<data::Microbatch> batch = loader->Next();
    if (batch.ok()) return ring_.Keep(std::move(batch).value());
    fault_ = WithCause(base::Annotate(batch.status(), fmt::format("step {}", step)),
                       batch.status().code() == absl::StatusCode::kDeadlineExceeded
                           ? Cause::kStorage
                           : CauseOf(batch.status()));
  }
  return ring_.Keep(EmptyMicrobatch(args_.model));
}

Status Engine::RunStep(int64_t step, data::Loader* loader, double command) {
  ring_.Begin(step);
  device().Zero(*stream_, vector_, sizeof(*vector_));
  for (int64_t i = 0; i < args_.microbatches; ++i) {
    model_->ForwardBackward(NextMicrobatch(loader, step),
                            {.mode = i == 0 ? GradMode::kOverwrite : GradMode::kAdd,
                             .last = i + 1 == args_.microbatches,
                             .seed = 1.0 / args_.constants.nominal_tokens,
                             .scalars = scalars_,
                             .sums = PairAt(&vector_->loss)});
    RETURN_IF_ERROR(data_parallel_.status());
  }
  FinishStep(step, command);
  return data_parallel_.status();
}

void Engine::FinishStep(int64_t step, double command) {
  StepRing::Words* words = ring_.words();
  words->command = command;
  words->fault = fault_.ok() ? 0 : 1;
  device().Copy(*stream_, &vector_->command, &words->command, 2 * sizeof(double));
  if (!fault_.ok()) {
    words->spoiled_loss = std::numeric_limits<double>::quiet_NaN();
    device().Copy(*stream_, &vector_->loss, &words->spoiled_loss, sizeof(double));
  }
  if (args_.end_of_step) args_.end_of_step(step, vector_);
  args_.phases->Switch(StepPhase::kDpComm);
  if (!data_parallel_.ReduceEndOfStep(*stream_, vector_).ok()) return;
  args_.phases->Switch(StepPhase::kOptimizer);
  args_.backend->update().Advance(*stream_, scalars_, vector_, args_.constants);
  optimizer_->Update(*stream_, scalars_);
  args_.phases->Switch(StepPhase::kOther);
  ring_.End(*stream_, vector_, scalars_);
}

StatusOr<EndOfStep> Engine::RunIdle(double command) {
  EndOfStep sum{.command = command, .fault = fault_.ok() ? 0.0 : 1.0};
  if (args_.end_of_step) args_.end_of_step(0, &sum);
  device().Copy(*stream_, vector_, &sum, sizeof(sum));
  RETURN_IF_ERROR(data_parallel_.ReduceEndOfStep(*stream_, vector_));
  device().Copy(*stream_, &sum, vector_, sizeof(sum));
  stream_->Synchronize();
  return sum;
}

void Engine::BeginEvaluation() { device().Zero(*stream_, eval_sums_.data, eval_sums_.Bytes()); }

void Engine::EvaluateMicrobatch(const data::Microbatch& batch) {
  model_->Evaluate(batch, eval_sums_);
}

void Engine::SpoilEvaluation() {
  device().Copy(*stream_, eval_sums_.data, kSpoiledSums, sizeof(kSpoiledSums));
}

StatusOr<Engine::EvalSums> Engine::FinishEvaluation() {
  RETURN_IF_ERROR(data_parallel_.SumDoubles(*stream_, eval_sums_));
  double sums[2] = {0, 0};
  device().Copy(*stream_, sums, eval_sums_.data, sizeof(sums));
  stream_->Synchronize();
  return EvalSums{.loss = sums[0], .tokens = sums[1]};
}

kernels::StepScalars Engine::ReadScalars() {
  kernels::StepScalars scalars;
  device().Copy(*stream_, &scalars, scalars_, sizeof(scalars));
  stream_->Synchronize();
  return scalars;
}

void Engine::RestoreScalars(const kernels::StepScalars& scalars) {
  device().Copy(*stream_, scalars_, &scalars, sizeof(scalars));
  params::RoundMaster(*stream_, args_.backend->vector(), *store_);
  stream_->Synchronize();
}

}  // namespace mt::train
