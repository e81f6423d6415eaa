// Commands: how they travel, when they act, what held ranks do.
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/spec/print.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/exchange.h"
#include "worker/train/trainer_impl.h"

namespace mt::train {
namespace {

bool Saves(CommandKind kind) {
  return kind == CommandKind::kCheckpointNow || kind == CommandKind::kStopWithSave;
}

}  // namespace

double Trainer::Impl::TakeWord(int64_t step) {
  if (!is_reporter()) return 0;
  CommandWord word;
  if (args_.commands != nullptr) {
    if (std::optional<Command> command = args_.commands->Poll()) {
      CHECK(command->kind != CommandKind::kUpdate || command->settings.has_value());
      word.Add(command->kind);
      under_way_.Sent(step, std::move(*command));
    }
  }
  // Until a word has acted, the time of the next save is not known. Held ranks have nothing new.
  if (!held_ && step >= timed_word_step_ + 2 && checkpointer_->DueByTime()) {
    word.save_due = true;
    timed_word_step_ = step;
  }
  const int64_t exit_after_ms = job_->training().exit_after();
  word.time_over =
      exit_after_ms > 0 && training_since_ &&
      args_.clock->Now() - *training_since_ >= std::chrono::milliseconds(exit_after_ms);
  return word.Encode();
}

StatusOr<std::optional<Trainer::Impl::Ending>> Trainer::Impl::ActBefore(int64_t step) {
  while (acted_step_ < step - 2) {
    RETURN_IF_ERROR(ReadUpTo(acted_step_ + 1));
    ++acted_step_;
    ASSIGN_OR_RETURN(const std::optional<Ending> ending,
                     Act(words_[RingIndex(acted_step_)], acted_step_));
    if (ending) return ending;
  }
  return held_ ? WaitHeld() : std::optional<Ending>();
}

StatusOr<std::optional<Trainer::Impl::Ending>> Trainer::Impl::Act(const CommandWord& word,
                                                                  int64_t word_step) {
  if (word.empty()) return std::optional<Ending>();
  RETURN_IF_ERROR(ReadUpTo(last_step_));
  const Status saved = word.checkpoint_now || word.save_due ? SaveAndGoOn(last_step_) : OkStatus();
  if (word.update) RETURN_IF_ERROR(Update(word_step));
  // Of several ways to stop at once, the one that keeps the work. Commands that stop are reported
  // when their save is over.
  if (saved.ok() && word.stop_with_save) return std::optional<Ending>(Ending::kStopWithSave);
  if (saved.ok() && word.stop_without_save) return std::optional<Ending>(Ending::kStopWithoutSave);
  if (saved.ok() && word.time_over) return std::optional<Ending>(Ending::kExitAfter);
  if (word.hold) EnterHeld();
  if (word.resume) LeaveHeld();
  ReportActed(word_step);
  RETURN_IF_ERROR(saved);
  return std::optional<Ending>();
}

StatusOr<std::optional<Trainer::Impl::Ending>> Trainer::Impl::WaitHeld() {
  while (held_) {
    if (acted_step_ < last_step_) {
      ++acted_step_;
      ASSIGN_OR_RETURN(const std::optional<Ending> ending,
                       Act(words_[RingIndex(acted_step_)], acted_step_));
      if (ending) return ending;
      continue;
    }
    std::this_thread::sleep_for(args_.idle_interval);
    ASSIGN_OR_RETURN(const engine::StepVector sum, engine_->RunIdle(TakeWord(/*step=*/0)));
    RETURN_IF_ERROR(Judge(last_step_, sum));
    args_.observer->OnProgress(last_step_);
    ASSIGN_OR_RETURN(const std::optional<Ending> ending,
                     Act(CommandWord::Decode(sum.command_bits), /*word_step=*/0));
    if (ending) return ending;
  }
  return std::optional<Ending>();
}

void Trainer::Impl::EnterHeld() {
  if (held_) return;
  held_ = true;
  engine_->phases().EndBetween();
  held_since_ = args_.clock->Now();
  log::Info("held", {{"after_step", last_step_}});
  args_.observer->OnState(TrainState::kHeld, last_step_);
}

void Trainer::Impl::LeaveHeld() {
  if (!held_) return;
  held_ = false;
  engine_->phases().EndPause();
  const base::MonotonicTime now = args_.clock->Now();
  checkpointer_->SkipPause(held_since_, now);
  if (!training_since_) training_since_ = now;
  log::Info("resumed", {{"after_step", last_step_}});
  args_.observer->OnState(TrainState::kTraining, last_step_);
}

Status Trainer::Impl::Update(int64_t word_step) {
  PackedSettings packed{};
  if (is_reporter()) {
    const std::optional<RunSettings> asked = under_way_.UpdateOf(word_step);
    CHECK(asked.has_value()) << "the word of an update without one, step " << word_step;
    packed = Pack(*asked);
  }
  comm::ProcessGroup* const world = args_.groups->world();
  if (world != nullptr) {
    RETURN_IF_ERROR(world->Broadcast(engine_->stream(), packed.data(), kNumRunSettings,
                                     kernels::DType::kI64, /*root=*/0));
    RETURN_IF_ERROR(engine_->Synchronize());
  }
  const RunSettings next = Unpack(packed);
  const RunSettings now = SettingsOf(*job_);
  update_status_ = OkStatus();
  if (next.eval_every_iters != now.eval_every_iters || next.eval_iters != now.eval_iters) {
    checkpoint::Exchange exchange(world, &engine_->stream());
    RunData data = data_;
    update_status_ = exchange.Agree(ReopenEvaluation(next, &data));
    // A broken group ends the run with the next step; settings that one rank cannot take over are
    // taken over by none.
    if (!update_status_.ok()) return OkStatus();
    data_ = std::move(data);
    evaluator_->SetCadence(next.eval_every_iters,
                           next.eval_iters * job_->training().global_batch_size());
  }
  ApplySettings(next, job_.get());
  checkpointer_->SetSpec(spec::ToJson(*job_));
  args_.observer->OnSettings(next);
  return OkStatus();
}

// Another number of evaluations may need more samples of the validation split.
Status Trainer::Impl::ReopenEvaluation(const RunSettings& next, RunData* data) const {
  megatrain::v1::JobSpec job = *job_;
  ApplySettings(next, &job);
  ASSIGN_OR_RETURN(
      RunData opened,
      OpenRunData({.job = &job, .data_root = args_.data_root, .cache_root = args_.cache_root}));
  data->valid = std::move(opened.valid);
  data->whole_valid = std::move(opened.whole_valid);
  return OkStatus();
}

void Trainer::Impl::ReportActed(int64_t word_step) {
  for (const SentCommand& sent : under_way_.TakeActed(word_step)) {
    args_.observer->OnCommandDone(ResultOf(sent));
  }
}

CommandResult Trainer::Impl::ResultOf(const SentCommand& sent) const {
  CommandResult result{.id = sent.command.id,
                       .kind = sent.command.kind,
                       .word_step = sent.step,
                       .step = last_step_,
                       .checkpoint = std::nullopt,
                       .error = OkStatus()};
  if (sent.command.kind == CommandKind::kUpdate) result.error = update_status_;
  if (!Saves(sent.command.kind)) return result;
  if (!checkpointer_->enabled()) {
    result.error =
        base::FailedPrecondition("the job saves no checkpoints: checkpoint.directory is \"none\"");
  } else if (checkpointer_->last_saved_step() == last_step_) {
    result.checkpoint = checkpointer_->last_saved();
  } else {
    result.error =
        save_tried_step_ == last_step_
            ? save_status_
            : base::FailedPrecondition("the run ended after step {}, before the save", last_step_);
  }
  return result;
}

void Trainer::Impl::ReportAtEnd() {
  if (!is_reporter()) return;
  update_status_ = OkStatus();  // a late one is for the next placement
  ReportActed(std::numeric_limits<int64_t>::max());
  while (args_.commands != nullptr) {
    std::optional<Command> command = args_.commands->Poll();
    if (!command) return;
    args_.observer->OnCommandDone(ResultOf({.step = 0, .command = std::move(*command)}));
  }
}

}  // namespace mt::train
