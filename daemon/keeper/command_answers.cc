// The outcome of each kind of command: a kill, a stop, and those that wait in StoredJob.
#include "daemon/keeper/command_answers.h"

#include "common/rpc/reason.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_placement.h"
#include "daemon/keeper/job_runtimes.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/job_verbs.h"
#include "daemon/keeper/pending_commands.h"
#include "daemon/keeper/reader_pins.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

}  // namespace

bool CommandAnswers::Acknowledged(const std::string& command_id, const std::string& node,
                                  bool accepted, const std::string& message) {
  CommandId id;
  if (!PendingCommands::Parse(command_id, &id)) return false;
  v1::StoredJob* stored = tools_.ledger->FindJob(id.job.job_uid);
  const bool current = stored != nullptr && stored->job().epoch() == id.job.epoch;
  if (id.kind == CommandIdKind::kKill) {
    if (current && (IsEnding(stored->job()) || stored->job().state() == v1::RECOVERING))
      tools_.runtimes->Of(stored->job()).kill_acked.insert(node);
    // The agent knows no such ranks.
    if (!accepted) parts_.teardown->AllocationGone({id.job.job_uid, id.job.epoch, node}, message);
    return true;
  }
  if (accepted || !current) return true;
  if (id.kind == CommandIdKind::kQueued) {
    v1::GivenWord command;
    if (tools_.commands->Take(*stored, command_id, &command))
      Refused(*stored, command, base::FailedPrecondition("node {}: {}", node, message));
    return true;
  }
  if (!IsEnding(stored->job()) || stored->killing() || stored->stop().command_id() != command_id)
    return true;
  if (stored->stop().keeps_ranks()) {
    // An older agent does not know the verb.
    parts_.teardown->StopAnyway(*stored);
    return true;
  }
  tools_.ledger->AddEvent(
      {.type = "StopRefused", .message = message, .job_uid = stored->job().uid(), .node = node});
  parts_.teardown->KillAll(*stored, "the word to stop could not be given");
  return true;
}

bool CommandAnswers::Acted(v1::StoredJob& stored, const v1::CommandDone& done) {
  CommandId id;
  const v1::Job& job = stored.job();
  if (!PendingCommands::Parse(done.command_id(), &id) || id.kind == CommandIdKind::kKill ||
      id.job != JobEpoch{job.uid(), job.epoch()}) {
    return false;
  }
  if (id.kind == CommandIdKind::kStop) {
    StopDone(stored, done);
    return true;
  }
  v1::GivenWord command;
  if (!tools_.commands->Take(stored, done.command_id(), &command)) return true;  // answered before
  if (VerbOf(command) == v1::Command::CHECKPOINT_NOW) {
    SaveDone(stored, command, done);
    return true;
  }
  if (VerbOf(command) == v1::Command::PROFILE) {
    ProfileDone(command, done);
    return true;
  }
  if (VerbOf(command) == v1::Command::DECODE) {
    DecodeDone(command, done);
    return true;
  }
  if (!done.error().empty()) {
    Refused(stored, command, base::FailedPrecondition("{}", done.error()));
    return true;
  }
  if (VerbOf(command) == v1::Command::UPDATE) {
    tools_.ledger->AddEvent({.type = "UpdateActed",
                             .message = fmt::format("in effect after step {}", done.step()),
                             .job_uid = job.uid(),
                             .actor = command.actor(),
                             .step = done.step(),
                             .word_step = done.word_step()});
  }
  v1::Operation* operation = tools_.ledger->FindOperation(command.operation());
  if (operation != nullptr && !operation->done()) {
    operation->set_word_step(done.word_step());
    operation->set_step(done.step());
    tools_.ledger->MarkOperation(*operation);
  }
  parts_.placement->RanksMoved(stored, /*training=*/false);
  parts_.verbs->SettleOperations(stored);
  return true;
}

void CommandAnswers::SaveDone(v1::StoredJob& stored, const v1::GivenWord& command,
                              const v1::CommandDone& done) {
  ClearCondition(stored.mutable_job(), "Saving");
  // With an error, too: then it was saved and could not be labelled.
  if (done.has_checkpoint()) RecordCheckpoint(tools_.ledger, stored, done.checkpoint());
  tools_.ledger->MarkJob(stored, Change::kState);
  v1::Operation* operation = tools_.ledger->FindOperation(command.operation());
  if (operation == nullptr || operation->done()) return;
  operation->set_word_step(done.word_step());
  operation->set_step(done.step());
  if (!done.has_checkpoint()) {
    tools_.operations->Fail(
        *operation,
        rpc::WithReason(
            base::Error(absl::StatusCode::kInternal, "the save failed: {}",
                        done.error().empty() ? "the ranks named no checkpoint" : done.error()),
            reason::kSaveFailed));
    return;
  }
  *operation->mutable_checkpoint() = done.checkpoint();
  const std::string saved =
      fmt::format("step {} is saved to {}", done.checkpoint().step(), done.checkpoint().path());
  if (!done.error().empty() || (command.has_label() && !done.checkpoint().has_label())) {
    const std::string why = done.error().empty()
                                ? "its ranks are of an older version, which knows no tags"
                                : done.error();
    tools_.operations->Fail(*operation,
                            rpc::WithReason(base::Error(absl::StatusCode::kInternal,
                                                        "{}, but not tagged: {}", saved, why),
                                            reason::kSaveFailed));
    return;
  }
  const std::string& tag = done.checkpoint().label().tag();
  tools_.operations->Succeed(*operation,
                             tag.empty() ? saved : fmt::format("{} with the tag {}", saved, tag));
}

void CommandAnswers::ProfileDone(const v1::GivenWord& command, const v1::CommandDone& done) {
  v1::Operation* operation = tools_.ledger->FindOperation(command.operation());
  if (operation == nullptr || operation->done()) return;
  operation->set_word_step(done.word_step());
  operation->set_step(done.step());
  if (!done.error().empty() || !done.has_profile()) {
    const std::string why = done.error().empty() ? "the ranks named no trace" : done.error();
    tools_.operations->Fail(*operation,
                            rpc::WithReason(base::FailedPrecondition("nothing was traced: {}", why),
                                            reason::kWordRefused));
    return;
  }
  const v1::StepProfile& profile = done.profile();
  *operation->mutable_profile() = profile;
  std::string result =
      fmt::format("traced steps {} to {}", profile.first_step(), profile.last_step());
  if (!profile.note().empty()) result += fmt::format(" ({})", profile.note());
  tools_.operations->Succeed(*operation, result);
}

void CommandAnswers::DecodeDone(const v1::GivenWord& command, const v1::CommandDone& done) {
  v1::Operation* operation = tools_.ledger->FindOperation(command.operation());
  if (operation == nullptr || operation->done()) return;
  operation->set_word_step(done.word_step());
  operation->set_step(done.step());
  if (!done.error().empty() || !done.has_decoded()) {
    const std::string why = done.error().empty() ? "the ranks sent no text" : done.error();
    tools_.operations->Fail(
        *operation, rpc::WithReason(base::FailedPrecondition("nothing was written: {}", why),
                                    reason::kWordRefused));
    return;
  }
  *operation->mutable_decoded() = done.decoded();
  tools_.operations->KeepTextsOf(*operation);
  const int texts = done.decoded().texts_size();
  tools_.operations->Succeed(*operation, fmt::format("{} text{} after step {}", texts,
                                                     texts == 1 ? "" : "s", done.step()));
}

void CommandAnswers::StopDone(v1::StoredJob& stored, const v1::CommandDone& done) {
  if (stored.stop().command_id() != done.command_id()) return;  // answered before
  v1::Job* job = stored.mutable_job();
  ClearCondition(job, "Saving");
  if (done.has_checkpoint() && done.error().empty())
    RecordCheckpoint(tools_.ledger, stored, done.checkpoint());
  if (!done.error().empty()) {
    SetCondition(job, "CheckpointStale", fmt::format("the last save failed: {}", done.error()),
                 tools_.ledger->NowMicros());
  }
  tools_.ledger->MarkJob(stored, Change::kState);
  for (v1::Operation* operation : tools_.ledger->OpenOperations(job->uid())) {
    if (operation->verb() != "cancel" && operation->mode() != "release") continue;
    operation->set_word_step(done.word_step());
    operation->set_step(done.step());
    if (done.has_checkpoint() && done.error().empty())
      *operation->mutable_checkpoint() = done.checkpoint();
    tools_.ledger->MarkOperation(*operation);
  }
  // Where the ranks are being killed already, for a fault or because P5 was over, they end.
  if (stored.killing()) return;
  if (done.held()) {
    NotReleased(stored, done);
  } else if (stored.stop().keeps_ranks() && !done.error().empty() && done.step() == 0) {
    // An older rank does not know the verb; it trains, or holds, as before.
    parts_.teardown->StopAnyway(stored);
  }
}

void CommandAnswers::NotReleased(v1::StoredJob& stored, const v1::CommandDone& done) {
  const v1::Job& job = stored.job();
  if (job.state() != v1::RELEASING || stored.stop().discard()) {
    // A cancel, a deadline or a pause that gives the work up came meanwhile.
    parts_.teardown->KillRanks(stored, fmt::format("the last save failed: {}", done.error()));
    return;
  }
  Why why{.text = fmt::format("not released, every rank is held after step {}: the save failed: {}",
                              done.step(), done.error()),
          .cause = v1::STORAGE,
          .step = done.step(),
          .word_step = done.word_step()};
  for (v1::Operation* operation : tools_.ledger->OpenOperations(job.uid())) {
    if (operation->mode() != "release") continue;
    why.order = {operation->actor(), operation->reason(), operation->request_id()};
    why.operation = operation->name();
    tools_.operations->Fail(
        *operation, rpc::WithReason(base::Error(absl::StatusCode::kInternal, "{}", why.text),
                                    reason::kSaveFailed));
  }
  if (job.goal() == v1::GOAL_RELEASE) tools_.transitions->SetGoal(stored, v1::GOAL_HOLD, why);
  tools_.raiser->Raise(stored, JobEvent::kSaveFailed, why);
}

void CommandAnswers::Refused(v1::StoredJob& stored, const v1::GivenWord& command,
                             const Status& why) {
  const v1::Job& job = stored.job();
  const Status status = rpc::WithReason(
      base::FailedPrecondition("the ranks did not take the word: {}", base::Message(why)),
      reason::kWordRefused);
  v1::Operation* operation = tools_.ledger->FindOperation(command.operation());
  if (operation != nullptr && !operation->done()) tools_.operations->Fail(*operation, status);
  tools_.ledger->AddEvent({.type = "WordRefused",
                           .message = fmt::format("{}: {}", v1::Command::Verb_Name(VerbOf(command)),
                                                  base::Message(why)),
                           .job_uid = job.uid(),
                           .operation = command.operation()});
  // What the ranks do is what they did before: the row changes the state, and its actions, which
  // would command them, are not carried out.
  const Why reverted{.text = base::Message(status)};
  if (VerbOf(command) == v1::Command::HOLD && job.goal() == v1::GOAL_HOLD) {
    tools_.transitions->SetGoal(stored, v1::GOAL_RUN, reverted);
    if (job.state() == v1::PAUSING) tools_.transitions->Apply(stored, JobEvent::kResume, reverted);
  } else if (VerbOf(command) == v1::Command::RESUME && job.goal() == v1::GOAL_RUN &&
             job.state() != v1::RELEASING) {
    tools_.transitions->SetGoal(stored, v1::GOAL_HOLD, reverted);
    if (job.state() == v1::RUNNING) tools_.transitions->Apply(stored, JobEvent::kHold, reverted);
  } else if (VerbOf(command) == v1::Command::CHECKPOINT_NOW) {
    ClearCondition(stored.mutable_job(), "Saving");
    tools_.ledger->MarkJob(stored, Change::kState);
  } else if (VerbOf(command) == v1::Command::KEEP_STEPS) {
    parts_.pins->Refused(stored, base::Message(why));
  }
  parts_.placement->RanksMoved(stored, /*training=*/false);
}

}  // namespace mt::daemon
