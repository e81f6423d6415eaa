// What follows each ending: which of them save, which complete the run, and their texts.
#include "worker/train/run_end.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/spec/number.h"
#include "megatrain/v1/job.pb.h"
#include "worker/failure/failure.h"
#include "worker/train/run_data.h"

namespace mt::train {

TrainResult RunEnd::Finish(const StatusOr<Ending>& ending) {
  TrainResult result{.last_step = args_.cursor->last()};
  if (!ending.ok()) {
    result.status = ending.status();
    // A verdict that all ranks share: a peer may still gather weights with this one.
    const Status broken = args_.groups->status();
    if (broken.ok()) {
      (void)args_.engine->Synchronize();
    } else {
      // Else a save beside training would wait for a peer that is gone.
      args_.groups->Abort(base::Message(broken));
    }
    // What is being saved is a state of before the error.
    (void)args_.checkpointer->Settle();
    return result;
  }
  result.status = args_.engine->Synchronize();
  if (!result.status.ok()) return result;
  Describe(*ending, &result);
  Settle(&result);
  if (Saves(*ending) && result.status.ok()) Save(&result);
  if (result.completed && args_.last_evaluation && result.status.ok()) {
    result.status = args_.last_evaluation();
  }
  if (result.status.ok()) Summarize(&result);
  args_.commands->ReportAtEnd();
  if (result.status.ok()) FinishCopies();
  return result;
}

bool RunEnd::Saves(Ending ending) const {
  // A save that a command asked for too late to act on its own is part of the end.
  if (args_.commands->IsSavePending() || args_.checkpointer->is_requested()) return true;
  switch (ending) {
    case Ending::kCompleted:
      return args_.job->checkpoint().at_end() || args_.checkpointer->DueAfter(args_.cursor->last());
    case Ending::kStopWithSave:
    case Ending::kExitAtIter:
    case Ending::kExitInterval:
    case Ending::kExitAfter:
      return true;
    case Ending::kStopWithoutSave:
      return false;
  }
  return false;
}

void RunEnd::Settle(TrainResult* result) {
  const Status settled = args_.checkpointer->Settle();
  args_.commands->ReportSaved();
  const Status ended = args_.checkpointer->EndedBy(settled);
  if (!ended.ok()) result->status = ended;
}

void RunEnd::Save(TrainResult* result) {
  const Status saved = args_.checkpointer->Save(args_.cursor->last());
  if (saved.ok()) return;
  result->final_save_failed = true;
  result->message = "the last checkpoint could not be saved: " + base::Message(saved);
  const Status ended = args_.checkpointer->EndedBy(saved);
  if (!ended.ok()) result->status = ended;
}

void RunEnd::FinishCopies() {
  constexpr std::chrono::milliseconds kLook{200};
  checkpoint::SecondCopy* const second = args_.checkpointer->second();
  int64_t moved = -1;
  while (second != nullptr && !second->WaitIdle(kLook)) {
    const int64_t now = second->moved_bytes();
    if (std::exchange(moved, now) != now) args_.observer->OnProgress(args_.cursor->last());
  }
}

void RunEnd::Describe(Ending ending, TrainResult* result) const {
  std::string how = "stopped as asked";
  const auto& training = args_.job->training();
  if (ending == Ending::kExitAtIter) {
    result->exit_condition = fmt::format("training.exit_at_iter {}", training.exit_at_iter());
  } else if (ending == Ending::kExitInterval) {
    result->exit_condition = fmt::format("training.exit_interval {}", training.exit_interval());
  } else if (ending == Ending::kExitAfter) {
    result->exit_condition = "training.exit_after " + spec::FormatDuration(training.exit_after());
  }
  if (!result->exit_condition.empty()) how = result->exit_condition + " reached: stopped";
  result->completed = ending == Ending::kCompleted;
  if (result->completed) how = "completed";
  if (result->completed && !args_.complete_run.empty()) {
    result->message = fmt::format("nothing to do: run {} has {} of {} steps", args_.complete_run,
                                  args_.cursor->last(), args_.total_steps);
    return;
  }
  result->message =
      fmt::format("{} after step {} of {}", how, args_.cursor->last(), args_.total_steps);
}

void RunEnd::Summarize(TrainResult* result) const {
  RunSummary& summary = result->summary;
  const kernels::StepScalars scalars = args_.engine->ReadScalars();
  summary.skipped_steps = scalars.skipped_steps;
  summary.passes = PassesOver(*args_.train_data, scalars.consumed_samples);
  int64_t starts = 0;
  for (const auto& [first, last] : args_.checkpointer->run().epochs) starts += last - first + 1;
  summary.restarts = std::max<int64_t>(starts - 1, 0);
  summary.best_evaluation = *args_.best_evaluation;
  if (result->completed && !args_.complete_run.empty()) return;  // nothing was done
  std::string& text = result->message;
  if (summary.skipped_steps > 0) text += fmt::format("; skipped steps: {}", summary.skipped_steps);
  if (summary.restarts > 0) text += fmt::format("; restarts: {}", summary.restarts);
  if (summary.passes > 0) text += fmt::format("; passes over the data: {:.1f}", summary.passes);
  if (summary.best_evaluation) {
    text += fmt::format("; best validation loss{}: {:.4f} after step {}",
                        summary.restarts > 0 ? " since the last start" : "",
                        summary.best_evaluation->loss, summary.best_evaluation->step);
    if (const auto& bits = summary.best_evaluation->bits_per_byte)
      text += fmt::format(" ({:.4f} bits per byte)", *bits);
  }
}

}  // namespace mt::train
