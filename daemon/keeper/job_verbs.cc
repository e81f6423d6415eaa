// JobKeeper's verbs: what users ask for, each as an Operation, and the answers of ranks to the
// words that carry it.
#include <algorithm>

#include "common/rpc/control_numbers.h"
#include "common/rpc/reason.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_keeper.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

// "paused by alice: maintenance".
std::string Because(std::string_view what, const Order& order) {
  return fmt::format("{} by {}{}{}", what, order.actor, order.reason.empty() ? "" : ": ",
                     order.reason);
}

}  // namespace

Status JobKeeper::WrongState(const v1::StoredJob& stored, std::string_view verb,
                             std::string_view why) const {
  const v1::Job& job = stored.job();
  return rpc::WithReason(
      base::FailedPrecondition("job '{}' is {}: {} is not possible there{}{} (possible: {})",
                               job.name(), PositionName(PositionOf(job)), verb,
                               why.empty() ? "" : ", ", why,
                               AllowedVerbs(PositionOf(job), job.goal())),
      reason::kWrongState);
}

Status JobKeeper::CheckVerb(const v1::StoredJob& stored, JobEvent event,
                            std::string_view verb) const {
  if (JobStateMachine::Allows(PositionOf(stored.job()), event)) return OkStatus();
  return WrongState(stored, verb, "");
}

void JobKeeper::GiveHold(v1::StoredJob& stored, const v1::Operation& operation,
                         const Order& order) {
  words_.DropUnheard(stored, v1::Command::HOLD);
  words_.DropUnheard(stored, v1::Command::RESUME);
  // Ranks that were assigned with it hold by themselves.
  if (stored.assigned_hold() && !Words::Has(stored, v1::Command::RESUME)) return;
  words_.Give(stored, v1::Command::HOLD, operation.name(), order);
}

JobKeeper::Operated JobKeeper::Hold(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kHold, "pause"));
  const bool queued = job.state() == v1::QUEUED;
  if (!queued && job.goal() == v1::GOAL_HOLD)
    return WrongState(stored, "pause", "it is to hold already");
  v1::Operation* operation = book_.Open(
      job, {.verb = "pause", .mode = "hold", .progress = "waiting for every rank to hold"}, order);
  book_.Supersede(job, *operation);
  const Why why{.text = Because("paused", order), .order = order, .operation = operation->name()};
  SetGoal(stored, queued ? v1::GOAL_RELEASE : v1::GOAL_HOLD, why);
  if (job.state() == v1::RUNNING) {
    words_.Give(stored, v1::Command::HOLD, operation->name(), order);
  } else if (!queued) {
    GiveHold(stored, *operation, order);
  } else {
    ClearCondition(stored.mutable_job(), "Waiting");
  }
  Apply(stored, JobEvent::kHold, why);
  RanksMoved(stored, /*training=*/false);
  return operation;
}

JobKeeper::Operated JobKeeper::Release(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kRelease, "pause --release"));
  const bool takes_words = TakesWords(job.state());
  if (!HasCheckpoints(job) && (takes_words || job.has_last_step())) {
    return rpc::WithReason(base::FailedPrecondition(
                               "job '{}' saves no checkpoints (checkpoint.directory is none): its "
                               "steps would be lost; hold it instead (pause --hold)",
                               job.name()),
                           reason::kNoCheckpoints);
  }
  v1::Operation* operation = book_.Open(
      job, {.verb = "pause", .mode = "release", .progress = "saving, then freeing the slots"},
      order);
  book_.Supersede(job, *operation);
  const Why why{.text = Because("paused", order), .order = order, .operation = operation->name()};
  SetGoal(stored, v1::GOAL_RELEASE, why);
  ClearCondition(stored.mutable_job(), "Waiting");
  if (!Apply(stored, JobEvent::kRelease, why)) return operation;
  EndRanks(stored,
           {.with_save = true, .takes_words = takes_words, .order = order, .why = why.text});
  return operation;
}

JobKeeper::Operated JobKeeper::Resume(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kResume, "resume"));
  if (job.goal() == v1::GOAL_RUN) return WrongState(stored, "resume", "it is to run already");
  v1::Operation* operation =
      book_.Open(job, {.verb = "resume", .progress = "waiting for the ranks"}, order);
  book_.Supersede(job, *operation);
  const Why why{.text = Because("resumed", order), .order = order, .operation = operation->name()};
  SetGoal(stored, v1::GOAL_RUN, why);
  if (TakesWords(job.state())) {
    words_.Give(stored, v1::Command::RESUME, operation->name(), order);
  } else if (IsActive(job.state())) {
    words_.DropUnheard(stored, v1::Command::HOLD);
    words_.DropUnheard(stored, v1::Command::RESUME);
    if (stored.assigned_hold() || Words::Has(stored, v1::Command::HOLD))
      words_.Give(stored, v1::Command::RESUME, operation->name(), order);
  } else {
    book_.Progress(*operation, "waiting for slots");
  }
  Apply(stored, JobEvent::kResume, why);
  RanksMoved(stored, /*training=*/false);
  return operation;
}

JobKeeper::Operated JobKeeper::Checkpoint(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  if (!TakesWords(job.state())) return WrongState(stored, "checkpoint", "no rank could save");
  if (!HasCheckpoints(job)) {
    return rpc::WithReason(base::FailedPrecondition("job '{}' saves no checkpoints "
                                                    "(checkpoint.directory is none)",
                                                    job.name()),
                           reason::kNoCheckpoints);
  }
  if (const v1::Operation* running = book_.FindOpen(job, "checkpoint"); running != nullptr) {
    return WrongState(stored, "another checkpoint",
                      fmt::format("{} is under way", running->name()));
  }
  v1::Operation* operation =
      book_.Open(job, {.verb = "checkpoint", .progress = "saving after the next step"}, order);
  words_.Give(stored, v1::Command::CHECKPOINT_NOW, operation->name(), order);
  SetCondition(stored.mutable_job(), "Saving", Because("asked for", order),
               parts_.ledger->NowMicros());
  return operation;
}

JobKeeper::Operated JobKeeper::Cancel(v1::StoredJob& stored, bool with_save, const Order& order) {
  const v1::Job& job = stored.job();
  if (job.state() == v1::STOPPING) {
    // A second user's cancel while the first is under way: the same operation.
    if (const v1::Operation* open = book_.FindOpen(job, "cancel"); open != nullptr) return open;
  }
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kCancel, "cancel"));
  v1::Operation* operation =
      book_.Open(job,
                 {.verb = "cancel",
                  .mode = with_save ? "checkpoint" : "",
                  .progress = with_save ? "saving, then stopping" : "stopping"},
                 order);
  book_.Supersede(job, *operation);
  const bool takes_words = TakesWords(job.state());
  const Why why{
      .text = Because("cancelled", order), .order = order, .operation = operation->name()};
  SetGoal(stored, v1::GOAL_STOP, why);
  if (!Apply(stored, JobEvent::kCancel, why) || IsFinal(job.state())) return operation;
  EndRanks(stored,
           {.with_save = with_save, .takes_words = takes_words, .order = order, .why = why.text});
  return operation;
}

JobKeeper::Operated JobKeeper::Kill(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kKill, "kill"));
  v1::Operation* operation =
      book_.Open(job, {.verb = "kill", .progress = "ending the processes"}, order);
  book_.Supersede(job, *operation);
  const bool stopping = job.state() == v1::STOPPING;
  const Why why{.text = stopping ? std::string(job.message()) : Because("killed", order),
                .order = order,
                .operation = operation->name()};
  SetGoal(stored, v1::GOAL_STOP, why);
  if (!Apply(stored, JobEvent::kKill, why) || IsFinal(job.state())) return operation;
  KillAll(stored, Because("killed", order));
  FinishIfGone(stored);
  return operation;
}

JobKeeper::Operated JobKeeper::Delete(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  if (!IsFinal(job.state())) return WrongState(stored, "delete", "it has not ended");
  v1::Operation* operation = book_.Open(job, {.verb = "delete"}, order);
  book_.Succeed(*operation, fmt::format("job {} is forgotten; its checkpoints stay", job.name()));
  runtime_.erase(job.uid());
  parts_.ledger->EraseJob(std::string(job.uid()));
  return operation;
}

void JobKeeper::SpecChanged(v1::StoredJob& stored, const Order& order) {
  // The newest wins: it carries the whole job.
  Words::Drop(stored, v1::Command::UPDATE);
  if (IsActive(stored.job().state())) words_.Give(stored, v1::Command::UPDATE, "", order);
}

bool JobKeeper::WordActed(v1::StoredJob& stored, const v1::CommandDone& done) {
  CommandId id;
  const v1::Job& job = stored.job();
  if (!Words::Parse(done.command_id(), &id) || id.kind == CommandKind::kKill ||
      id.job != JobEpoch{job.uid(), job.epoch()}) {
    return false;
  }
  if (id.kind == CommandKind::kStop) {
    StopDone(stored, done);
    return true;
  }
  v1::GivenWord word;
  if (!words_.Take(stored, done.command_id(), &word)) return true;  // answered before
  if (word.verb() == v1::Command::CHECKPOINT_NOW) {
    SaveDone(stored, word, done);
    return true;
  }
  if (!done.error().empty()) {
    WordRefused(stored, word, base::FailedPrecondition("{}", done.error()));
    return true;
  }
  if (word.verb() == v1::Command::UPDATE) {
    parts_.ledger->AddEvent({.type = "UpdateActed",
                             .message = fmt::format("in effect after step {}", done.step()),
                             .job_uid = job.uid(),
                             .actor = word.actor(),
                             .step = done.step(),
                             .word_step = done.word_step()});
  }
  v1::Operation* operation = parts_.ledger->FindOperation(word.operation());
  if (operation != nullptr && !operation->done()) {
    operation->set_word_step(done.word_step());
    operation->set_step(done.step());
    parts_.ledger->MarkOperation(*operation);
  }
  RanksMoved(stored, /*training=*/false);
  SettleOperations(stored);
  return true;
}

void JobKeeper::SaveDone(v1::StoredJob& stored, const v1::GivenWord& word,
                         const v1::CommandDone& done) {
  ClearCondition(stored.mutable_job(), "Saving");
  if (done.error().empty() && done.has_checkpoint())
    RecordCheckpoint(parts_.ledger, stored, done.checkpoint());
  parts_.ledger->MarkJob(stored, Change::kState);
  v1::Operation* operation = parts_.ledger->FindOperation(word.operation());
  if (operation == nullptr || operation->done()) return;
  operation->set_word_step(done.word_step());
  operation->set_step(done.step());
  if (!done.error().empty() || !done.has_checkpoint()) {
    book_.Fail(*operation,
               rpc::WithReason(base::Error(absl::StatusCode::kInternal, "the save failed: {}",
                                           done.error().empty() ? "the ranks named no checkpoint"
                                                                : done.error()),
                               reason::kSaveFailed));
    return;
  }
  *operation->mutable_checkpoint() = done.checkpoint();
  book_.Succeed(*operation, fmt::format("step {} is saved to {}", done.checkpoint().step(),
                                        done.checkpoint().path()));
}

void JobKeeper::StopDone(v1::StoredJob& stored, const v1::CommandDone& done) {
  v1::Job* job = stored.mutable_job();
  ClearCondition(job, "Saving");
  if (done.has_checkpoint() && done.error().empty())
    RecordCheckpoint(parts_.ledger, stored, done.checkpoint());
  if (!done.error().empty()) {
    SetCondition(job, "CheckpointStale", fmt::format("the last save failed: {}", done.error()),
                 parts_.ledger->NowMicros());
  }
  parts_.ledger->MarkJob(stored, Change::kState);
  for (v1::Operation* operation : parts_.ledger->OpenOperations(job->uid())) {
    if (operation->verb() != "cancel" && operation->mode() != "release") continue;
    operation->set_word_step(done.word_step());
    operation->set_step(done.step());
    if (done.has_checkpoint() && done.error().empty())
      *operation->mutable_checkpoint() = done.checkpoint();
    parts_.ledger->MarkOperation(*operation);
  }
}

void JobKeeper::WordRefused(v1::StoredJob& stored, const v1::GivenWord& word, const Status& why) {
  const v1::Job& job = stored.job();
  const Status status = rpc::WithReason(
      base::FailedPrecondition("the ranks did not take the word: {}", base::Message(why)),
      reason::kWordRefused);
  v1::Operation* operation = parts_.ledger->FindOperation(word.operation());
  if (operation != nullptr && !operation->done()) book_.Fail(*operation, status);
  parts_.ledger->AddEvent(
      {.type = "WordRefused",
       .message = fmt::format("{}: {}",
                              v1::Command::Verb_Name(static_cast<v1::Command::Verb>(word.verb())),
                              base::Message(why)),
       .job_uid = job.uid(),
       .operation = word.operation()});
  // What the ranks do is what they did before.
  const Why reverted{.text = base::Message(status)};
  if (word.verb() == v1::Command::HOLD && job.goal() == v1::GOAL_HOLD) {
    SetGoal(stored, v1::GOAL_RUN, reverted);
    if (job.state() == v1::PAUSING) Apply(stored, JobEvent::kResume, reverted);
  } else if (word.verb() == v1::Command::RESUME && job.goal() == v1::GOAL_RUN) {
    SetGoal(stored, v1::GOAL_HOLD, reverted);
    if (job.state() == v1::RUNNING) Apply(stored, JobEvent::kHold, reverted);
  } else if (word.verb() == v1::Command::CHECKPOINT_NOW) {
    ClearCondition(stored.mutable_job(), "Saving");
    parts_.ledger->MarkJob(stored, Change::kState);
  }
  RanksMoved(stored, /*training=*/false);
}

}  // namespace mt::daemon
