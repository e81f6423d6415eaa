// The order of a training step, which is Engine::RunStep below. Everything here only enqueues work;
// the outcome is read from the StepRing two steps later.
#include <cstddef>
#include <limits>
#include <utility>

#include "common/base/math.h"
#include "worker/engine/engine.h"
#include "worker/engine/phase_scope.h"
#include "worker/failure/failure.h"

namespace mt::engine {
namespace {

// One copy takes the four values of the host into the vector.
static_assert(offsetof(StepVector, fault) == offsetof(StepVector, command_bits) + sizeof(double));
static_assert(offsetof(StepVector, pipeline_wait) == offsetof(StepVector, fault) + sizeof(double));
static_assert(offsetof(StepRing::HostValues, fault) == sizeof(double));
static_assert(offsetof(StepVector, label_bytes) ==
              offsetof(StepVector, pipeline_wait) + sizeof(double));
static_assert(offsetof(StepRing::HostValues, pipeline_wait) == 2 * sizeof(double));
static_assert(offsetof(StepRing::HostValues, label_bytes) == 3 * sizeof(double));

// `first` and the double behind it: f64 [2].
kernels::Tensor PairAt(double* first) { return {first, kernels::DType::kF64, {2}}; }

// The share of its time in which a stage waits for others.
double WaitShare(const parallel::PassTimes& times) {
  return times.total > 0 ? times.wait() / times.total : 0;
}
double WaitShare(PhaseClock* phases, int64_t step) {
  const std::optional<StepTime> time = step < 0 ? std::nullopt : phases->Of(step);
  if (!time || time->seconds <= 0) return 0;
  return time->phases[static_cast<size_t>(StepPhase::kPpWait)] / time->seconds;
}

}  // namespace

Status Engine::RunStep(int64_t step, data::Loader* loader, double command_bits) {
  kernels::StepConstants constants = constants_;
  constants.batch_samples = BatchOf(step);
  ring_.Begin(step);  // waits for the end of the step three before
  phases_->SetStep(step);
  if (args_.spans != nullptr) args_.spans->BeginStep(step);
  recordings_->BeginStep();
  device().Zero(*stream_, vector_, sizeof(*vector_));

  // Forward and backward of every microbatch, in the order of the pipeline's schedule. The last
  // backward hands each bucket of gradients, as it completes, to the sum over the replicas.
  RETURN_IF_ERROR(RunMicrobatches(step, loader, constants));

  // Waits for these sums, exchanges the gradients of tied word embeddings between the first and the
  // last stage, sums partial gradients over the tensor ranks, and adds up the squares of the norm.
  PhaseScope reduction(phases_.get(), StepPhase::kDpComm);
  RETURN_IF_ERROR(reduction.KeepOpenOnError(
      sync_->FinishGradients(*stream_, PairAt(&vector_->sums.sum_squares))));

  // The end-of-step vector, summed over all ranks: squares, loss and tokens, command bits, faults.
  AddHostValues(step, command_bits);
  RETURN_IF_ERROR(reduction.KeepOpenOnError(sync_->ReduceEndOfStep(*stream_, AsTensor(vector_))));

  // From the sums, alike on every rank and on the device: skip, loss scale, gradient norm, clip,
  // learning rate.
  const PhaseScope update(phases_.get(), StepPhase::kOptimizer);
  args_.backend->update().Advance(*stream_, scalars_, &vector_->sums, constants);

  AwaitSnapshot();
  // The update, bucket by bucket in the order of the next forward; under ZeRO-1 each bucket's
  // weights are gathered behind it.
  optimizer_->Update(*stream_, scalars_, sync_.get());

  phases_->EndStep(step);  // closes both phases
  if (args_.spans != nullptr) args_.spans->EndStep(*stream_);
  ring_.End(*stream_, vector_, scalars_);
  return sync_->status();
}

void Engine::AwaitSnapshot() {
  if (snapshot_ == nullptr || !snapshot_->pending()) return;
  const PhaseScope copying(phases_.get(), StepPhase::kCheckpoint);
  snapshot_->AwaitCopied(*stream_);
}

void Engine::SetCourse(const spec::Course& course, const kernels::StepConstants& constants) {
  ramp_ = course.ramp;
  constants_ = constants;
}

int64_t Engine::BatchOf(int64_t step) const { return ramp_.BatchOf(ramp_.SamplesAfter(step - 1)); }

Status Engine::RunMicrobatches(int64_t step, data::Loader* loader,
                               const kernels::StepConstants& constants) {
  const int microbatches = base::CheckedCast<int>(
      base::DivExact(constants.batch_samples, args_.config.samples_per_round));
  label_bytes_ = 0;
  ASSIGN_OR_RETURN(const parallel::Schedule* schedule, schedules_->OfStep(microbatches));
  work_->Begin({.microbatches = microbatches,
                .next = [&] { return NextMicrobatch(loader, step); },
                .label_bytes = counts_losses() ? &label_bytes_ : nullptr,
                .training = true,
                .step = {.seed = 1.0 / constants.nominal_tokens,
                         .scalars = scalars_,
                         .sums = counts_losses() ? PairAt(&vector_->sums.loss) : uncounted_}});
  return executor_->Run(*schedule);
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

// Tokens of weight zero: forward and backward run, loss and gradients are zero.
data::Microbatch Engine::EmptyMicrobatch() const {
  return data::EmptyMicrobatch(args_.config.model.seq, args_.config.model.micro_batch,
                               microbatch_parts_);
}

void Engine::AddHostValues(int64_t step, double command_bits) {
  StepRing::HostValues* const mine = ring_.host_values();
  mine->command_bits = command_bits;
  mine->fault = fault_.ok() ? 0 : 1;
  // On the CPU of this step; where the device enqueues, of the newest whose end was waited for.
  mine->pipeline_wait = device().Enqueues() ? WaitShare(phases_.get(), step - StepRing::kSteps)
                                            : WaitShare(executor_->times());
  mine->label_bytes = label_bytes_;
  device().Copy(*stream_, &vector_->command_bits, &mine->command_bits, 4 * sizeof(double));
  if (!fault_.ok()) {
    mine->spoiled_loss = std::numeric_limits<double>::quiet_NaN();
    device().Copy(*stream_, &vector_->sums.loss, &mine->spoiled_loss, sizeof(double));
  }
  if (args_.end_of_step) ChangeVector(step);
}

void Engine::ChangeVector(int64_t step) {
  StepVector* const mine = &host_->vector;
  device().Copy(*stream_, mine, vector_, sizeof(*mine));
  stream_->Synchronize();
  args_.end_of_step(step, mine);
  device().Copy(*stream_, vector_, mine, sizeof(*mine));
}

}  // namespace mt::engine
