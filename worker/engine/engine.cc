#include "worker/engine/engine.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <utility>

#include "common/base/math.h"
#include "worker/failure/failure.h"
#include "worker/params/init.h"

namespace mt::engine {
namespace {

using kernels::DType;
using kernels::Tensor;

// One copy takes the three values of the host into the vector.
static_assert(offsetof(StepVector, fault) == offsetof(StepVector, command_bits) + sizeof(double));
static_assert(offsetof(StepVector, pipeline_wait) == offsetof(StepVector, fault) + sizeof(double));
static_assert(offsetof(StepRing::HostValues, fault) == sizeof(double));
static_assert(offsetof(StepRing::HostValues, pipeline_wait) == 2 * sizeof(double));

// Loss and tokens of a rank without a result: far below what all other ranks' tokens can add up to.
constexpr double kSpoiledTokens = -1e18;

Tensor PairAt(double* first) { return {first, DType::kF64, {2}}; }

int64_t FreeBytes(kernels::Device& device) {
  const auto memory = device.Memory();
  return memory ? memory->free_bytes : 0;
}

}  // namespace

Engine::Engine(const Args& args)
    : args_(args),
      free_at_start_(FreeBytes(args.backend->device())),
      stream_(args.backend->device().CreateStream(kernels::StreamPriority::kLow)),
      phases_(&args.backend->device(), stream_.get(), args.clock),
      ring_(&args.backend->device()),
      pinned_(args.backend->device().Allocate(sizeof(HostBlock), kernels::MemoryKind::kPinnedHost)),
      host_(new(pinned_->data()) HostBlock()) {
  host_->spoiled[1] = kSpoiledTokens;
}

Engine::~Engine() { args_.groups->CloseLinks(); }

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

data::Microbatch Engine::NextMicrobatch(data::Loader* loader, int64_t step) {
  if (fault_.ok()) {
    StatusOr<data::Microbatch> batch = loader->Next();
    if (batch.ok()) return std::move(batch).value();
    fault_ = failure::WithCause(base::Annotate(batch.status(), fmt::format("step {}", step)),
                                batch.status().code() == absl::StatusCode::kDeadlineExceeded
                                    ? failure::Cause::kStorage
                                    : failure::CauseOf(batch.status()));
  }
  return EmptyMicrobatch();
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
                .next = [&] { return NextMicrobatch(loader, step); },
                .training = true,
                .step = {.seed = 1.0 / now.nominal_tokens,
                         .scalars = scalars_,
                         .sums = counts_losses() ? PairAt(&vector_->sums.loss) : uncounted_}});
  return executor_->Run(*schedule);
}

Status Engine::FinishStep(int64_t step, double command, const kernels::StepConstants& now) {
  phases_.Switch(StepPhase::kDpComm);
  RETURN_IF_ERROR(sync_->FinishGradients(*stream_, PairAt(&vector_->sums.sum_squares)));
  StepRing::HostValues* mine = ring_.host_values();
  mine->command_bits = command;
  mine->fault = fault_.ok() ? 0 : 1;
  const pipeline::PassTimes& times = executor_->times();
  mine->pipeline_wait = times.total > 0 ? times.wait() / times.total : 0;
  device().Copy(*stream_, &vector_->command_bits, &mine->command_bits, 3 * sizeof(double));
  if (!fault_.ok()) {
    mine->spoiled_loss = std::numeric_limits<double>::quiet_NaN();
    device().Copy(*stream_, &vector_->sums.loss, &mine->spoiled_loss, sizeof(double));
  }
  if (args_.end_of_step) ChangeVector(step);
  RETURN_IF_ERROR(sync_->ReduceEndOfStep(*stream_, AsTensor(vector_)));
  phases_.Switch(StepPhase::kOptimizer);
  args_.backend->update().Advance(*stream_, scalars_, &vector_->sums, now);
  optimizer_->Update(*stream_, scalars_, sync_.get());
  phases_.EndStep(step);
  ring_.End(*stream_, vector_, scalars_);
  return sync_->status();
}

void Engine::ChangeVector(int64_t step) {
  StepVector* const mine = &host_->vector;
  device().Copy(*stream_, mine, vector_, sizeof(*mine));
  stream_->Synchronize();
  args_.end_of_step(step, mine);
  device().Copy(*stream_, vector_, mine, sizeof(*mine));
}

StatusOr<StepVector> Engine::RunIdle(double command) {
  StepVector* const sum = &host_->vector;
  stream_->Synchronize();
  *sum = {.command_bits = command, .fault = fault_.ok() ? 0.0 : 1.0};
  if (args_.end_of_step) args_.end_of_step(0, sum);
  device().Copy(*stream_, vector_, sum, sizeof(*sum));
  RETURN_IF_ERROR(sync_->ReduceEndOfStep(*stream_, AsTensor(vector_)));
  device().Copy(*stream_, sum, vector_, sizeof(*sum));
  stream_->Synchronize();
  return *sum;
}

Status Engine::BeginEvaluation() {
  device().Zero(*stream_, eval_sums_.data, eval_sums_.Bytes());
  return sync_->WaitAllWeights(*stream_);
}

Status Engine::EvaluatePass(int microbatches, const std::function<data::Microbatch()>& next) {
  const schedule::Schedule& schedule = schedules_->OfEvaluation(microbatches);
  CHECK_LE(MicrobatchWindow(schedule, args_.config.stage),
           MicrobatchWindow(schedules_->largest(), args_.config.stage));
  work_->Begin({.microbatches = microbatches,
                .next = next,
                .training = false,
                .sums = counts_losses() ? eval_sums_ : uncounted_});
  return executor_->Run(schedule);
}

void Engine::SpoilEvaluation() {
  device().Copy(*stream_, eval_sums_.data, host_->spoiled, sizeof(host_->spoiled));
}

StatusOr<Engine::EvalSums> Engine::FinishEvaluation() {
  RETURN_IF_ERROR(sync_->SumDoubles(*stream_, eval_sums_));
  device().Copy(*stream_, host_->sums, eval_sums_.data, sizeof(host_->sums));
  stream_->Synchronize();
  return EvalSums{.loss = host_->sums[0], .tokens = host_->sums[1]};
}

Status Engine::Synchronize() {
  RETURN_IF_ERROR(sync_->WaitAllWeights(*stream_));
  stream_->Synchronize();
  return OkStatus();
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
  return bytes;
}

Status Engine::RebuildWeights() {
  params::RoundMaster(*stream_, args_.backend->vector(), *store_);
  RETURN_IF_ERROR(sync_->GatherAll(*stream_));
  stream_->Synchronize();
  return OkStatus();
}

}  // namespace mt::engine
