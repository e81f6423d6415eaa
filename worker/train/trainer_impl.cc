#include "worker/train/trainer_impl.h"

#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "megatrain/v1/job.pb.h"
#include "worker/train/failure.h"

namespace mt::train {
namespace {

size_t RingIndex(int64_t step) { return static_cast<size_t>(step % StepRing::kSteps); }

}  // namespace

TrainResult Trainer::Impl::Run() {
  args_.observer->OnState(TrainState::kTraining);
  TrainResult result = Finish(Loop());
  args_.observer->OnState(TrainState::kExiting);
  return result;
}

StatusOr<Trainer::Impl::Ending> Trainer::Impl::Loop() {
  while (last_step_ < total_steps_) {
    const int64_t step = last_step_ + 1;
    log::SetStep(step);
    ASSIGN_OR_RETURN(const std::optional<Ending> ending, ActBefore(step));
    if (ending) return *ending;
    RETURN_IF_ERROR(RunStep(step));
    last_step_ = step;
    args_.observer->OnProgress(step);
    if (step < total_steps_) RETURN_IF_ERROR(RunDue(step));
  }
  RETURN_IF_ERROR(ReadUpTo(last_step_));
  return Ending::kCompleted;
}

StatusOr<std::optional<Trainer::Impl::Ending>> Trainer::Impl::ActBefore(int64_t step) {
  const int64_t acting = step - 2;
  if (acting <= start_step_) return std::optional<Ending>();
  RETURN_IF_ERROR(ReadUpTo(acting));
  const CommandWord word = words_[RingIndex(acting)];
  if (word.empty()) return std::optional<Ending>();
  RETURN_IF_ERROR(ReadUpTo(last_step_));
  if (word.checkpoint_now) RETURN_IF_ERROR(SaveAndGoOn(last_step_));
  for (const std::string& id : under_way_.TakeActed(acting)) args_.observer->OnCommandDone(id);
  // Of two ways to stop at once, the one that keeps the work.
  if (word.stop_with_save) return std::optional<Ending>(Ending::kStopWithSave);
  if (word.stop_without_save) return std::optional<Ending>(Ending::kStopWithoutSave);
  return std::optional<Ending>();
}

Status Trainer::Impl::RunStep(int64_t step) {
  // Evaluations and saves lie between the steps: only the time of saves is kept, for the record.
  const double save_seconds = phases_.Take()[static_cast<size_t>(StepPhase::kCheckpoint)];
  const base::MonotonicTime begin = args_.clock->Now();
  RETURN_IF_ERROR(engine_->RunStep(step, loader_.get(), TakeWord(step)));
  StepTimes& times = times_[RingIndex(step)];
  times.step_seconds = std::chrono::duration<double>(args_.clock->Now() - begin).count();
  times.phase_seconds = phases_.Take();
  times.phase_seconds[static_cast<size_t>(StepPhase::kCheckpoint)] = save_seconds;
  return OkStatus();
}

double Trainer::Impl::TakeWord(int64_t step) {
  if (!is_reporter()) return 0;
  CommandWord word;
  if (args_.commands != nullptr) {
    if (const std::optional<Command> command = args_.commands->Poll()) {
      word.Add(command->kind);
      under_way_.Sent(step, command->id);
    }
  }
  // Until a word has acted, the time of the next save is not known.
  if (step >= timed_word_step_ + 2 && checkpointer_->DueByTime()) {
    word.checkpoint_now = true;
    timed_word_step_ = step;
  }
  return word.Encode();
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
    const StepOutcome outcome = engine_->ring().Read(k);
    words_[RingIndex(k)] = CommandWord::Decode(outcome.vector.command);
    if (is_reporter()) {
      StepRecord record = MakeStepRecord(report_, k, outcome, times_[RingIndex(k)]);
      record.time_us = base::ToUnixMicros(args_.clock->WallNow());
      args_.observer->OnStep(record);
    }
    RETURN_IF_ERROR(Judge(k, outcome.vector));
  }
  return OkStatus();
}

Status Trainer::Impl::Judge(int64_t step, const kernels::EndOfStep& vector) {
  if (vector.fault > 0) {
    if (!engine_->fault().ok()) return engine_->fault();
    return base::Unavailable("step {}: {:.0f} other rank(s) reported a fault; all ranks stop", step,
                             vector.fault);
  }
  if (IsFinite(vector) || !stop_at_nonfinite_) return OkStatus();
  return NonfiniteError(step, vector);
}

Status Trainer::Impl::Evaluate(int64_t step, bool final) {
  ASSIGN_OR_RETURN(const EvalRecord record, evaluator_->Run(step, final));
  if (is_reporter()) args_.observer->OnEval(record);
  return OkStatus();
}

Status Trainer::Impl::SaveAndGoOn(int64_t step) {
  phases_.Switch(StepPhase::kCheckpoint);
  const Status saved = checkpointer_->Save(step);
  phases_.Switch(StepPhase::kOther);
  return checkpointer_->strict() ? WithCause(saved, Cause::kStorage) : OkStatus();
}

void Trainer::Impl::SaveAtEnd(TrainResult* result) {
  const Status saved = checkpointer_->Save(last_step_);
  if (saved.ok()) return;
  result->final_save_failed = true;
  result->message = "the last checkpoint could not be saved: " + base::Message(saved);
  if (checkpointer_->strict()) result->status = WithCause(saved, Cause::kStorage);
}

TrainResult Trainer::Impl::Finish(const StatusOr<Ending>& ending) {
  TrainResult result{.last_step = last_step_};
  if (!ending.ok()) {
    result.status = ending.status();
    return result;
  }
  result.completed = *ending == Ending::kCompleted;
  result.message =
      fmt::format("{} after step {} of {}", result.completed ? "completed" : "stopped as asked",
                  last_step_, total_steps_);
  const bool at_end = args_.job->checkpoint().at_end() || checkpointer_->DueAfter(last_step_);
  if (*ending == Ending::kStopWithSave || (result.completed && at_end)) SaveAtEnd(&result);
  if (result.completed) {
    if (evaluator_->enabled() && result.status.ok()) {
      result.status = Evaluate(last_step_, /*final=*/true);
    }
    // Commands that came too late for a step to carry their word to an end.
    for (const std::string& id : under_way_.TakeActed(last_step_))
      args_.observer->OnCommandDone(id);
  }
  return result;
}

}  // namespace mt::train
