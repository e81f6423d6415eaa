// The loop itself is Loop; the rest is what a turn of it consists of.
#include "worker/train/step_loop.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/layout/group_axes.h"
#include "megatrain/v1/job.pb.h"
#include "worker/engine/phase_scope.h"
#include "worker/failure/failure.h"
#include "worker/optim/schedule.h"
#include "worker/train/run_end.h"
#include "worker/train/run_update.h"

namespace mt::train {

using megatrain::v1::Training;

namespace {

// The ending that the job asks for at the last step done.
std::optional<Ending> ExitDue(const Training& training, const StepCursor& cursor) {
  const int64_t last = cursor.last();
  if (training.has_exit_at_iter() && last >= training.exit_at_iter()) return Ending::kExitAtIter;
  const int64_t interval = training.exit_interval();
  // Whoever begins at a multiple has ended there before.
  const bool due = interval > 0 && last > cursor.start() && last % interval == 0;
  return due ? std::optional(Ending::kExitInterval) : std::nullopt;
}

}  // namespace

StepLoop::StepLoop(const TrainArgs& args, RunParts parts)
    : args_(args),
      run_(std::move(parts)),
      judge_({.stop_at_nonfinite = run_.job->training().nonfinite() != Training::NONFINITE_SKIP,
              .stop_after_skipped = run_.job->training().stop_after_skipped(),
              .scale = optim::LossScaleFromJob(*run_.job),
              .loss_scale = run_.loss_scale}),
      profile_({.engine = run_.engine.get(),
                .groups = args.groups,
                .spans = args.spans != nullptr ? args.spans : run_.spans.get(),
                .clock = args.clock,
                .chunks = static_cast<int>(run_.job->parallel().virtual_stages()),
                .planned = args.trace,
                .on_planned = [this](const auto& trace) { args_.observer->OnTrace(trace); },
                .trace_directory = args.trace_directory,
                .job_uid = args.job_uid,
                .total_steps = run_.course.steps}),
      commands_({.source = args.commands,
                 .target = this,
                 .observer = args.observer,
                 .cursor = &run_.cursor,
                 .clock = args.clock,
                 .is_rank_0 = is_rank_0(),
                 .exit_after = std::chrono::milliseconds(run_.job->training().exit_after()),
                 .idle_interval = args.idle_interval}) {}

StepLoop::~StepLoop() = default;

TrainResult StepLoop::Run() {
  run_.engine->phases().EndBetween();  // what it took to get ready
  if (!args_.hold) {
    commands_.BeginTraining();
    args_.observer->OnState(TrainState::kTraining, run_.cursor.last());
  }
  StatusOr<Ending> ending = Loop();
  if (ending.ok()) {
    const Status traced = profile_.EndRun(run_.cursor.last());
    if (!traced.ok()) ending = traced;
  }
  RunEnd end({.job = run_.job.get(),
              .total_steps = run_.course.steps,
              .complete_run = run_.complete_run,
              .cursor = &run_.cursor,
              .groups = args_.groups,
              .engine = run_.engine.get(),
              .checkpointer = run_.checkpointer.get(),
              .commands = &commands_,
              .observer = args_.observer,
              .train_data = run_.data->train.get(),
              .best_evaluation = &best_evaluation_,
              .last_evaluation = [this]() -> Status {
                if (!run_.evaluator->enabled()) return OkStatus();
                // What saves are compared by, the last one too.
                if (run_.job->checkpoint().keep_best() > 0 && run_.evaluator->has_windows())
                  RETURN_IF_ERROR(Evaluate(run_.cursor.last(), EvalScope::kLastPart));
                return Evaluate(run_.cursor.last(), EvalScope::kWhole);
              }});
  TrainResult result = end.Finish(ending);
  args_.observer->OnState(TrainState::kExiting, run_.cursor.last());
  return result;
}

StatusOr<Ending> StepLoop::Loop() {
  StepCursor& cursor = run_.cursor;
  bool hold_first = args_.hold;
  while (cursor.last() < run_.course.steps) {
    const std::optional<Ending> exit = ExitDue(run_.job->training(), cursor);
    if (exit) return End(*exit);
    const int64_t step = cursor.next();
    log::SetStep(step);
    if (std::exchange(hold_first, false)) RETURN_IF_ERROR(commands_.Hold());
    const base::MonotonicTime begin = args_.clock->Now();
    ASSIGN_OR_RETURN(const std::optional<Ending> ending, commands_.ActBefore(step));
    profile_.AddHost("read results, act", step, begin);
    if (ending == Ending::kExitAfter)
      RETURN_IF_ERROR(judge_.JudgeEnd(run_.checkpointer->since_save().begun_step()));
    if (ending) return *ending;
    RETURN_IF_ERROR(profile_.BeforeStep(step));
    commands_.ReportSaved();
    RETURN_IF_ERROR(RunStep(step));
    cursor.Enqueue();
    run_.reporter->CountEnded(&cursor);
    args_.observer->OnProgress(step);
    if (step < run_.course.steps) RETURN_IF_ERROR(RunDue(step));
  }
  return End(Ending::kCompleted);
}

StatusOr<Ending> StepLoop::End(Ending ending) {
  RETURN_IF_ERROR(ReadUpTo(run_.cursor.last()));
  ASSIGN_OR_RETURN(const std::optional<Ending> released, commands_.ActBeforeEnd());
  if (released) return *released;
  RETURN_IF_ERROR(judge_.JudgeEnd(run_.checkpointer->since_save().begun_step()));
  return ending;
}

Status StepLoop::RunStep(int64_t step) {
  if (args_.host_delay.count() > 0) std::this_thread::sleep_for(args_.host_delay);
  if (run_.cursor.last() == run_.cursor.start()) {
    args_.observer->OnActivity(
        {.kind = ActivityKind::kFirstStep,
         .step = step,
         .done = 0,
         .total = run_.engine->BatchOf(step) / args_.groups->axes().SizeOf(layout::kDataAxes) /
                  run_.job->training().micro_batch_size()});
  }
  const base::MonotonicTime begin = args_.clock->Now();
  const double bits = commands_.Take(step).Encode();
  RETURN_IF_ERROR(run_.engine->RunStep(step, run_.loader.get(), bits));
  const std::chrono::duration<double> launch = args_.clock->Now() - begin;
  profile_.AddHost("enqueue", step, begin);
  if (args_.after_step) {
    RETURN_IF_ERROR(run_.engine->Synchronize());
    args_.after_step(step, run_.engine->store());
    run_.engine->phases().EndBetween();
  }
  run_.reporter->Enqueued(step, launch.count());
  return OkStatus();
}

Status StepLoop::RunDue(int64_t step) {
  const bool save = run_.checkpointer->DueAfter(step);
  const bool evaluate = run_.evaluator->DueAfter(step, run_.course.steps);
  if (!save && !evaluate) return OkStatus();
  RETURN_IF_ERROR(ReadUpTo(step));
  if (save) RETURN_IF_ERROR(BeginSave(/*requested=*/false));
  return evaluate ? Evaluate(step, EvalScope::kPart) : OkStatus();
}

Status StepLoop::ReadUpTo(int64_t step) {
  StepCursor& cursor = run_.cursor;
  while (cursor.read() < step) {
    const engine::StepOutcome outcome = run_.engine->ring().Read(cursor.read() + 1);
    // Behind a broken group whose calls return before they are done, a step computes with anything.
    RETURN_IF_ERROR(args_.groups->device_status());
    run_.reporter->CountEnded(&cursor);
    const int64_t k = cursor.Read();
    // Libraries take what they take on first use.
    if (k == cursor.start() + 1) run_.reporter->MeasureMemory();
    commands_.Received(k, CommandBits::Decode(outcome.vector.command_bits));
    // A step in which a rank had a fault has not been trained.
    if (is_rank_0() && outcome.vector.fault == 0) run_.reporter->Report(k, outcome);
    RETURN_IF_ERROR(NameMissingData(judge_.Judge(k, outcome.vector, run_.engine->fault())));
    run_.checkpointer->since_save().TakeStep(std::isfinite(outcome.vector.sums.loss));
    RETURN_IF_ERROR(judge_.Count(k, outcome));
  }
  return OkStatus();
}

Status StepLoop::Evaluate(int64_t step, EvalScope scope) {
  const StatusOr<EvalRecord> evaluated = run_.evaluator->Run(step, scope);
  RETURN_IF_ERROR(NameMissingData(evaluated.status()));
  const EvalRecord& record = *evaluated;
  run_.reporter->MeasureMemory();
  run_.engine->phases().EndBetween();
  // Of another measure only one during training counts: then an update has changed the windows.
  if (!best_evaluation_ ||
      (best_evaluation_->measure == record.measure
           ? record.loss < best_evaluation_->loss || std::isnan(best_evaluation_->loss)
           : scope != EvalScope::kWhole)) {
    best_evaluation_ = record;
  }
  if (is_rank_0()) {
    args_.observer->OnEval(record);
    run_.checkpointer->TakeEvaluation(record);
  }
  return OkStatus();
}

Status StepLoop::InSavePhase(const std::function<Status()>& part) {
  engine::PhaseClock& phases = run_.engine->phases();
  Status saved;
  {
    const engine::PhaseScope saving(&phases, report::StepPhase::kCheckpoint);
    saved = part();
  }
  if (!commands_.held()) phases.EndBetween();
  return run_.checkpointer->EndedBy(saved);
}

Status StepLoop::Save() {
  return InSavePhase([this] { return run_.checkpointer->Save(run_.cursor.last()); });
}

Status StepLoop::BeginSave(bool requested) {
  return InSavePhase([&] { return run_.checkpointer->Begin(run_.cursor.last(), requested); });
}

bool StepLoop::IsSaveOver() const {
  run_.checkpointer->Watch();
  return run_.checkpointer->IsOver();
}

Status StepLoop::EndSave() {
  return InSavePhase([this] { return run_.checkpointer->End(run_.cursor.last()); });
}

Status StepLoop::Update(const std::optional<RunSettings>& asked, Status* refused) {
  return UpdateRun({.world = args_.groups->world(),
                    .engine = run_.engine.get(),
                    .course = run_.course,
                    .data_root = args_.data_root,
                    .cache_root = args_.cache_root,
                    .job = run_.job.get(),
                    .data = run_.data.get(),
                    .evaluator = run_.evaluator.get(),
                    .checkpointer = run_.checkpointer.get(),
                    .observer = args_.observer},
                   asked, refused);
}

Status StepLoop::Profile(const std::optional<int64_t>& asked, Status* refused) {
  return profile_.Begin(asked, run_.cursor.last(), commands_.held(), refused);
}

Status StepLoop::Decode(const std::optional<TextRequest>& asked,
                        StatusOr<std::vector<DecodedText>>* texts) {
  if (run_.asked_texts == nullptr) {
    *texts = base::FailedPrecondition(
        "the job has planned no memory for texts: training.eval.decode_tokens is 0, and is given "
        "when a job is submitted");
    return OkStatus();
  }
  const int64_t last = run_.cursor.last();
  RETURN_IF_ERROR(run_.asked_texts->Write(
      asked, [this, last] { args_.observer->OnProgress(last); }, texts));
  run_.reporter->MeasureMemory();
  run_.engine->phases().EndBetween();  // what that took is no step's time
  return OkStatus();
}

StatusOr<CommandBits> StepLoop::ReduceIdle(const CommandBits& mine) {
  ASSIGN_OR_RETURN(const engine::StepVector sum, run_.engine->RunIdle(mine.Encode()));
  RETURN_IF_ERROR(judge_.Judge(run_.cursor.last(), sum, run_.engine->fault()));
  return CommandBits::Decode(sum.command_bits);
}

Status StepLoop::OnHeld() {
  run_.engine->phases().EndBetween();
  return profile_.EndEarly(run_.cursor.last(), "the ranks were held");
}

void StepLoop::OnResumed(base::MonotonicTime since, base::MonotonicTime now) {
  run_.engine->phases().EndPause();
  run_.checkpointer->SkipPause(since, now);
}

bool StepLoop::IsSaved() const { return run_.checkpointer->IsSaved(run_.cursor.last()); }

bool StepLoop::IsSaveDueByTime() const { return run_.checkpointer->DueByTime(); }

std::optional<StatusOr<CheckpointRecord>> StepLoop::SavedSince(int64_t step) const {
  return run_.checkpointer->SavedSince(step);
}

Status StepLoop::Label(const CheckpointRecord& saved, const checkpoint::Label& label) {
  return run_.checkpointer->Label(saved, label);
}

Status StepLoop::WithStep(const Status& thrown) const {
  return failure::WithCause(
      base::Error(thrown.code(), "in step {} (results are known up to step {}): {}",
                  run_.cursor.next(), run_.cursor.read(), base::Message(thrown)),
      failure::CauseOf(thrown));
}

}  // namespace mt::train
