#include "worker/train/trainer_impl.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/spec/derived.h"
#include "common/spec/number.h"
#include "megatrain/v1/job.pb.h"
#include "worker/failure/failure.h"

namespace mt::train {
namespace {

// A directory that another epoch holds is no fault of the disk.
failure::Cause CauseOfSave(const Status& saved) {
  return absl::IsFailedPrecondition(saved) ? failure::Cause::kUserError : failure::Cause::kStorage;
}

}  // namespace

TrainResult Trainer::Impl::Run() {
  engine_->phases().EndBetween();  // what it took to get ready
  if (!args_.hold) {
    training_since_ = args_.clock->Now();
    args_.observer->OnState(TrainState::kTraining, last_step_);
  }
  TrainResult result = Finish(Loop());
  args_.observer->OnState(TrainState::kExiting, last_step_);
  return result;
}

StatusOr<Trainer::Impl::Ending> Trainer::Impl::Loop() {
  bool hold_first = args_.hold;
  while (last_step_ < total_steps_) {
    const int64_t exit_at = job_->training().exit_at_iter();
    if (exit_at > 0 && last_step_ >= exit_at) {
      RETURN_IF_ERROR(ReadUpTo(last_step_));
      return Ending::kExitAtIter;
    }
    const int64_t step = last_step_ + 1;
    log::SetStep(step);
    if (std::exchange(hold_first, false)) EnterHeld();
    ASSIGN_OR_RETURN(const std::optional<Ending> ending, ActBefore(step));
    if (ending) return *ending;
    RETURN_IF_ERROR(RunStep(step));
    last_step_ = step;
    CountEnded();
    args_.observer->OnProgress(step);
    if (step < total_steps_) RETURN_IF_ERROR(RunDue(step));
  }
  RETURN_IF_ERROR(ReadUpTo(last_step_));
  return Ending::kCompleted;
}

Status Trainer::Impl::RunStep(int64_t step) {
  if (args_.host_delay.count() > 0) std::this_thread::sleep_for(args_.host_delay);
  const base::MonotonicTime begin = args_.clock->Now();
  RETURN_IF_ERROR(engine_->RunStep(step, loader_.get(), TakeWord(step)));
  const std::chrono::duration<double> launch = args_.clock->Now() - begin;
  if (args_.after_step) {
    RETURN_IF_ERROR(engine_->Synchronize());
    args_.after_step(step, engine_->store());
    engine_->phases().EndBetween();
  }
  times_[RingIndex(step)] = {.batch = engine_->BatchOf(step), .launch_seconds = launch.count()};
  return OkStatus();
}

void Trainer::Impl::CountEnded() {
  // Evaluations and saves lie between the steps: only the time of saves is kept, for the record.
  constexpr auto kSave = static_cast<size_t>(report::StepPhase::kCheckpoint);
  while (counted_step_ < last_step_) {
    const std::optional<engine::StepTime> time = engine_->phases().Of(counted_step_ + 1);
    if (!time) return;
    StepTimes& times = times_[RingIndex(++counted_step_)];
    times.step_seconds = time->seconds;
    times.phase_seconds = time->phases;
    times.phase_seconds[kSave] = time->between[kSave];
    counters_.tokens += times.batch / engine_->dp_size() * job_->model().seq_length();
    engine::Add(time->between, &counters_.phase_seconds);
    engine::Add(time->phases, &counters_.phase_seconds);
    counters_.comm = args_.groups->Stats();
    counters_.step_seconds = time->seconds;
    args_.observer->OnCounters(counters_);
  }
}

Status Trainer::Impl::RunDue(int64_t step) {
  const bool save = checkpointer_->DueAfter(step);
  const bool evaluate = evaluator_->DueAfter(step, total_steps_);
  if (!save && !evaluate) return OkStatus();
  RETURN_IF_ERROR(ReadUpTo(step));
  if (save) RETURN_IF_ERROR(SaveAndGoOn(step));
  return evaluate ? Evaluate(step, /*final=*/false) : OkStatus();
}

Status Trainer::Impl::ReadUpTo(int64_t step) {
  while (read_step_ < step) {
    const int64_t k = ++read_step_;
    const engine::StepOutcome outcome = engine_->ring().Read(k);
    CountEnded();
    CHECK_GE(counted_step_, k);
    // Libraries take what they take on first use.
    if (k == start_step_ + 1) MeasureMemory();
    words_[RingIndex(k)] = CommandWord::Decode(outcome.vector.command_bits);
    if (is_reporter()) {
      StepRecord record = MakeStepRecord(report_, k, outcome, times_[RingIndex(k)]);
      record.time_us = base::ToUnixMicros(args_.clock->WallNow());
      args_.observer->OnStep(record);
    }
    RETURN_IF_ERROR(Judge(k, outcome.vector));
    loss_scale_ = outcome.scalars.loss_scale;
  }
  return OkStatus();
}

Status Trainer::Impl::Judge(int64_t step, const engine::StepVector& vector) {
  if (vector.fault > 0) {
    if (!engine_->fault().ok()) return engine_->fault();
    return base::Unavailable("step {}: {:.0f} other rank(s) reported a fault; all ranks stop", step,
                             vector.fault);
  }
  if (IsFinite(vector) || !stop_at_nonfinite_ || IsForTheLossScale(vector)) return OkStatus();
  return NonfiniteError(step, vector);
}

bool Trainer::Impl::IsForTheLossScale(const engine::StepVector& vector) const {
  return loss_scale_constants_.kind == kernels::LossScaleKind::kDynamic &&
         std::isfinite(vector.sums.loss) && loss_scale_ > loss_scale_constants_.min;
}

Status Trainer::Impl::Evaluate(int64_t step, bool final) {
  ASSIGN_OR_RETURN(const EvalRecord record, evaluator_->Run(step, final));
  MeasureMemory();
  engine_->phases().EndBetween();
  if (is_reporter()) args_.observer->OnEval(record);
  return OkStatus();
}

Status Trainer::Impl::SaveAndGoOn(int64_t step) {
  engine::PhaseClock& phases = engine_->phases();
  phases.Switch(report::StepPhase::kCheckpoint);
  save_status_ = checkpointer_->Save(step);
  save_tried_step_ = step;
  phases.Switch(report::StepPhase::kOther);
  if (!held_) phases.EndBetween();
  if (!checkpointer_->EndsRun(save_status_)) return OkStatus();
  return failure::WithCause(save_status_, CauseOfSave(save_status_));
}

// Saves that a word asked for too late to act on its own are part of the last one.
bool Trainer::Impl::SavesAtEnd(Ending ending) const {
  for (int64_t step = acted_step_ + 1; step <= last_step_; ++step) {
    const CommandWord& word = words_[RingIndex(step)];
    if (word.checkpoint_now || word.stop_with_save) return true;
  }
  switch (ending) {
    case Ending::kCompleted:
      return job_->checkpoint().at_end() || checkpointer_->DueAfter(last_step_);
    case Ending::kStopWithSave:
    case Ending::kExitAtIter:
    case Ending::kExitAfter:
      return true;
    case Ending::kStopWithoutSave:
      return false;
  }
  return false;
}

void Trainer::Impl::SaveAtEnd(TrainResult* result) {
  save_status_ = checkpointer_->Save(last_step_);
  save_tried_step_ = last_step_;
  if (save_status_.ok()) return;
  result->final_save_failed = true;
  result->message = "the last checkpoint could not be saved: " + base::Message(save_status_);
  if (checkpointer_->EndsRun(save_status_)) {
    result->status = failure::WithCause(save_status_, CauseOfSave(save_status_));
  }
}

void Trainer::Impl::Describe(Ending ending, TrainResult* result) const {
  std::string how = "stopped as asked";
  const auto& training = job_->training();
  if (ending == Ending::kExitAtIter) {
    result->exit_condition = fmt::format("training.exit_at_iter {}", training.exit_at_iter());
  } else if (ending == Ending::kExitAfter) {
    result->exit_condition = "training.exit_after " + spec::FormatDuration(training.exit_after());
  }
  if (!result->exit_condition.empty()) how = result->exit_condition + " reached: stopped";
  result->completed = ending == Ending::kCompleted;
  if (result->completed) how = "completed";
  result->message = fmt::format("{} after step {} of {}", how, last_step_, total_steps_);
}

TrainResult Trainer::Impl::Finish(const StatusOr<Ending>& ending) {
  TrainResult result{.last_step = last_step_};
  if (!ending.ok()) {
    result.status = ending.status();
    // A verdict that all ranks share: a peer may still gather weights with this one.
    if (groups().status().ok()) (void)engine_->Synchronize();
    return result;
  }
  result.status = engine_->Synchronize();
  if (!result.status.ok()) return result;
  Describe(*ending, &result);
  if (SavesAtEnd(*ending)) SaveAtEnd(&result);
  if (result.completed && evaluator_->enabled() && result.status.ok()) {
    result.status = Evaluate(last_step_, /*final=*/true);
  }
  ReportAtEnd();
  return result;
}

}  // namespace mt::train
