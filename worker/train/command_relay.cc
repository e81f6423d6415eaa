// The rules by which ranks stay together: bits act in the order of the steps that carried them, and
// everything that ends, holds or saves follows from bits that all ranks have read.
#include "worker/train/command_relay.h"

#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"

namespace mt::train {
namespace {

bool Saves(CommandKind kind) {
  return kind == CommandKind::kCheckpointNow || kind == CommandKind::kStopWithSave ||
         kind == CommandKind::kRelease;
}

}  // namespace

CommandBits CommandRelay::Take(int64_t step) {
  CommandBits bits;
  if (!args_.is_rank_0) return bits;
  if (args_.source != nullptr) {
    if (std::optional<Command> command = args_.source->Poll()) {
      CHECK(command->kind != CommandKind::kUpdate || command->settings.has_value());
      CHECK(command->kind != CommandKind::kDecode || command->texts.has_value());
      bits.Add(command->kind);
      pending_.Sent(step, std::move(*command));
    }
  }
  // Until the last save_due has acted, the time of the next save is not known. Held ranks have
  // nothing new.
  if (!held_ && step >= save_due_step_ + StepCursor::kLag && args_.target->IsSaveDueByTime()) {
    bits.save_due = true;
    save_due_step_ = step;
  }
  // Held ranks act at once.
  if ((held_ || step >= save_over_step_ + StepCursor::kLag) && args_.target->IsSaveOver()) {
    bits.save_over = true;
    save_over_step_ = step;
  }
  bits.time_over = args_.exit_after.count() > 0 && training_since_ &&
                   args_.clock->Now() - *training_since_ >= args_.exit_after;
  return bits;
}

StatusOr<std::optional<Ending>> CommandRelay::ActBefore(int64_t step) {
  while (args_.cursor->MustActBefore(step)) {
    RETURN_IF_ERROR(args_.target->ReadUpTo(args_.cursor->acted() + 1));
    const int64_t carrier = args_.cursor->Act();
    ASSIGN_OR_RETURN(const std::optional<Ending> ending, Act(bits_[carrier], carrier));
    if (ending) return ending;
  }
  return held_ ? WaitHeld() : std::optional<Ending>();
}

StatusOr<std::optional<Ending>> CommandRelay::ActBeforeEnd() {
  const bool release = IsPending([](const CommandBits& bits) { return bits.release; });
  while (release && args_.cursor->HasUnacted()) {
    const int64_t carrier = args_.cursor->Act();
    ASSIGN_OR_RETURN(const std::optional<Ending> ending, Act(bits_[carrier], carrier));
    if (ending) return ending;
  }
  return held_ ? WaitHeld() : std::optional<Ending>();
}

StatusOr<std::optional<Ending>> CommandRelay::Act(const CommandBits& bits, int64_t carrier) {
  ReportSaved();  // a save that hangs has failed meanwhile
  if (bits.empty()) return std::optional<Ending>();
  RETURN_IF_ERROR(args_.target->ReadUpTo(args_.cursor->last()));
  Status saved = bits.save_over ? args_.target->EndSave() : OkStatus();
  if (saved.ok() && bits.release) {
    saved = args_.target->Save();
  } else if (saved.ok() && (bits.checkpoint_now || bits.save_due)) {
    saved = args_.target->BeginSave(/*requested=*/bits.checkpoint_now);
  }
  // Every rank knows alike whether the save succeeded, so all of them end or none does.
  kept_ = bits.release && saved.ok() && !args_.target->IsSaved();
  if (bits.update) RETURN_IF_ERROR(Update(carrier));
  if (bits.profile) RETURN_IF_ERROR(Profile(carrier));
  // Of several ways to stop at once, the one that keeps the work. Commands that stop are reported
  // when their save is over.
  if (saved.ok() && bits.stop_with_save) return std::optional<Ending>(Ending::kStopWithSave);
  if (saved.ok() && bits.stop_without_save) return std::optional<Ending>(Ending::kStopWithoutSave);
  if (saved.ok() && bits.release && !kept_) return std::optional<Ending>(Ending::kStopWithSave);
  if (saved.ok() && bits.time_over && !kept_) return std::optional<Ending>(Ending::kExitAfter);
  if (bits.hold) RETURN_IF_ERROR(Hold());
  if (bits.resume) Resume();
  if (kept_) RETURN_IF_ERROR(Hold());
  if (bits.decode && saved.ok()) RETURN_IF_ERROR(Decode(carrier));
  if (bits.decode && !saved.ok())
    decoded_ = base::FailedPrecondition("the run ends: {}", base::Message(saved));
  ReportActed(carrier);
  RETURN_IF_ERROR(saved);
  return std::optional<Ending>();
}

Status CommandRelay::Update(int64_t carrier) {
  std::optional<RunSettings> asked;
  if (args_.is_rank_0) {
    asked = pending_.UpdateOf(carrier);
    CHECK(asked.has_value()) << "the bit of an update without one, step " << carrier;
  }
  return args_.target->Update(asked, &update_refused_);
}

Status CommandRelay::Profile(int64_t carrier) {
  std::optional<int64_t> asked;
  if (args_.is_rank_0) {
    asked = pending_.ProfileOf(carrier);
    CHECK(asked.has_value()) << "the bit of a profile without one, step " << carrier;
  }
  return args_.target->Profile(asked, &profile_refused_);
}

Status CommandRelay::Decode(int64_t carrier) {
  if (held_) {
    decoded_ = base::FailedPrecondition(
        "the ranks are held, and write between two steps: ask again when they train (mtctl "
        "resume)");
    return OkStatus();
  }
  std::optional<TextRequest> asked;
  if (args_.is_rank_0) {
    asked = pending_.TextsOf(carrier);
    CHECK(asked.has_value()) << "the bit of a decode without one, step " << carrier;
  }
  return args_.target->Decode(asked, &decoded_);
}

StatusOr<std::optional<Ending>> CommandRelay::WaitHeld() {
  while (held_) {
    if (args_.cursor->HasUnacted()) {
      const int64_t carrier = args_.cursor->Act();
      ASSIGN_OR_RETURN(const std::optional<Ending> ending, Act(bits_[carrier], carrier));
      if (ending) return ending;
      continue;
    }
    std::this_thread::sleep_for(args_.idle_interval);
    ASSIGN_OR_RETURN(const CommandBits bits, args_.target->ReduceIdle(Take(/*step=*/0)));
    args_.observer->OnProgress(args_.cursor->last());
    ASSIGN_OR_RETURN(const std::optional<Ending> ending, Act(bits, /*carrier=*/0));
    if (ending) return ending;
  }
  return std::optional<Ending>();
}

Status CommandRelay::Hold() {
  if (held_) return OkStatus();
  held_ = true;
  RETURN_IF_ERROR(args_.target->OnHeld());
  held_since_ = args_.clock->Now();
  log::Info("held", {{"after_step", args_.cursor->last()}});
  args_.observer->OnState(TrainState::kHeld, args_.cursor->last());
  return OkStatus();
}

void CommandRelay::Resume() {
  if (!held_) return;
  held_ = false;
  const base::MonotonicTime now = args_.clock->Now();
  args_.target->OnResumed(held_since_, now);
  if (!training_since_) training_since_ = now;
  log::Info("resumed", {{"after_step", args_.cursor->last()}});
  args_.observer->OnState(TrainState::kTraining, args_.cursor->last());
}

void CommandRelay::ReportActed(int64_t carrier) {
  const int64_t last = args_.cursor->last();
  for (SentCommand& sent : pending_.TakeActed(carrier)) {
    if (Saves(sent.command.kind) && !args_.target->SavedSince(last)) {
      saving_.push_back({.sent = std::move(sent), .acted_after = last});
    } else if (sent.command.kind == CommandKind::kProfile && profile_refused_.ok() && !over_) {
      profiling_ = std::move(sent);
    } else {
      args_.observer->OnCommandDone(ResultOf(sent, last));
    }
  }
  ReportSaved();
}

void CommandRelay::ReportSaved() {
  while (!saving_.empty() && args_.target->SavedSince(saving_.front().acted_after)) {
    args_.observer->OnCommandDone(ResultOf(saving_.front().sent, saving_.front().acted_after));
    saving_.pop_front();
  }
  if (profiling_ && args_.target->Profiled()) ReportProfiled();
}

void CommandRelay::ReportProfiled() {
  const std::optional<SentCommand> sent = std::exchange(profiling_, std::nullopt);
  if (!sent) return;
  CommandResult result = ResultOf(*sent, args_.cursor->last());
  const std::optional<StatusOr<ProfileRecord>> profiled = args_.target->Profiled();
  if (profiled && profiled->ok()) {
    result.error = OkStatus();
    result.profile = **profiled;
    result.step = result.profile->last_step;
  } else {
    result.error = profiled ? profiled->status() : NothingTraced();
  }
  args_.observer->OnCommandDone(result);
}

Status CommandRelay::NothingTraced() const {
  return base::FailedPrecondition("the run ended after step {}, before there was a trace",
                                  args_.cursor->last());
}

Status CommandRelay::NothingWritten() const {
  return base::FailedPrecondition("the run ended after step {}, before the ranks wrote",
                                  args_.cursor->last());
}

CommandResult CommandRelay::ResultOf(const SentCommand& sent, int64_t acted_after) const {
  CommandResult result{.id = sent.command.id,
                       .kind = sent.command.kind,
                       .carrier_step = sent.step,
                       .step = acted_after,
                       .checkpoint = std::nullopt,
                       .error = OkStatus(),
                       .held = sent.command.kind == CommandKind::kRelease && kept_};
  if (sent.command.kind == CommandKind::kUpdate) result.error = update_refused_;
  if (sent.command.kind == CommandKind::kProfile)
    result.error = over_ ? NothingTraced() : profile_refused_;
  if (sent.command.kind == CommandKind::kDecode) {
    result.error = over_ ? NothingWritten() : decoded_.status();
    if (result.error.ok()) result.texts = *decoded_;
  }
  if (!Saves(sent.command.kind)) return result;
  const std::optional<StatusOr<CheckpointRecord>> saved = args_.target->SavedSince(acted_after);
  if (!saved) {
    result.error = base::FailedPrecondition("the run ended after step {}, before the save",
                                            args_.cursor->last());
  } else if (!saved->ok()) {
    result.error = saved->status();
  } else {
    result.checkpoint = **saved;
    result.step = result.checkpoint->step;
    if (sent.command.label.empty()) return result;
    result.error = args_.target->Label(*result.checkpoint, sent.command.label);
    if (result.error.ok()) result.checkpoint->label = sent.command.label;
  }
  return result;
}

bool CommandRelay::IsPending(const std::function<bool(const CommandBits&)>& wanted) const {
  for (int64_t step = args_.cursor->acted() + 1; step <= args_.cursor->last(); ++step) {
    if (wanted(bits_[step])) return true;
  }
  return false;
}

bool CommandRelay::IsSavePending() const {
  return IsPending([](const CommandBits& bits) {
    return bits.checkpoint_now || bits.stop_with_save || bits.release;
  });
}

void CommandRelay::ReportAtEnd() {
  if (!args_.is_rank_0) return;
  update_refused_ = OkStatus();  // a late one is for the next placement
  kept_ = false;                 // nobody waits any more
  ReportSaved();
  if (profiling_) ReportProfiled();
  over_ = true;
  ReportActed(std::numeric_limits<int64_t>::max());
  for (const Saving& saving : std::exchange(saving_, {}))
    args_.observer->OnCommandDone(ResultOf(saving.sent, saving.acted_after));
  while (args_.source != nullptr) {
    std::optional<Command> command = args_.source->Poll();
    if (!command) return;
    args_.observer->OnCommandDone(
        ResultOf({.step = 0, .command = std::move(*command)}, args_.cursor->last()));
  }
}

}  // namespace mt::train
