// Each verb checks the state, opens its operation, sets the goal and raises its event; what is told
// to ranks is in the rows of the table.
#include "daemon/keeper/job_verbs.h"

#include "common/rpc/reason.h"
#include "common/spec/job_kind.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_runtimes.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/pending_commands.h"
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

Status JobVerbs::WrongState(const v1::StoredJob& stored, std::string_view verb,
                            std::string_view why) const {
  const v1::Job& job = stored.job();
  return rpc::WithReason(
      base::FailedPrecondition("job '{}' is {}: {} is not possible there{}{} (possible: {})",
                               job.name(), PositionName(PositionOf(job)), verb,
                               why.empty() ? "" : ", ", why,
                               AllowedVerbs(PositionOf(job), job.goal())),
      reason::kWrongState);
}

Status JobVerbs::CheckVerb(const v1::StoredJob& stored, JobEvent event,
                           std::string_view verb) const {
  if (JobStateMachine::Allows(PositionOf(stored.job()), event)) return OkStatus();
  return WrongState(stored, verb, "");
}

Status JobVerbs::CheckKind(const v1::Job& job, std::string_view verb) {
  const spec::JobKind& kind = spec::KindOf(job.spec());
  if (kind.has_steps) return OkStatus();
  return rpc::WithReason(
      base::FailedPrecondition("job '{}' is of kind {}: {} is of jobs that make steps, and it "
                               "makes none (possible: cancel, kill, and delete behind its end)",
                               job.name(), kind.name, verb),
      reason::kWrongKind);
}

Status JobVerbs::NoCheckpoints(const v1::Job& job, std::string_view consequence) {
  return rpc::WithReason(
      base::FailedPrecondition("job '{}' saves no checkpoints (checkpoint.directory is none){}",
                               job.name(), consequence),
      reason::kNoCheckpoints);
}

JobVerbs::Operated JobVerbs::Hold(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckKind(job, "pause"));
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kHold, "pause"));
  const bool queued = job.state() == v1::QUEUED;
  if (!queued && job.goal() == v1::GOAL_HOLD)
    return WrongState(stored, "pause", "it is to hold already");
  v1::Operation* operation = tools_.operations->Open(
      job, {.verb = "pause", .mode = "hold", .progress = "waiting for every rank to hold"}, order);
  tools_.operations->Supersede(job, *operation);
  const Why why{.text = Because("paused", order), .order = order, .operation = operation->name()};
  tools_.transitions->SetGoal(stored, queued ? v1::GOAL_RELEASE : v1::GOAL_HOLD, why);
  tools_.raiser->Raise(stored, JobEvent::kHold, why);
  return operation;
}

JobVerbs::Operated JobVerbs::Release(v1::StoredJob& stored, bool discard, const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckKind(job, "pause"));
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kRelease, "pause --release"));
  if (job.state() == v1::RELEASING && job.goal() == v1::GOAL_RELEASE &&
      !(discard && stored.has_stop() && !stored.stop().discard())) {
    return WrongState(stored, "pause --release", "it is being released already");
  }
  if (!discard && !HasCheckpoints(job) &&
      (TakesCommands(job.state()) || job.has_last_step() || HasRanksAtWork(job))) {
    return NoCheckpoints(job,
                         ": its steps would be lost; hold it instead (pause --hold), or give them "
                         "up (pause --release --discard)");
  }
  v1::Operation* operation = tools_.operations->Open(
      job,
      {.verb = "pause",
       .mode = "release",
       .progress = discard ? "saving if that is possible, and freeing the slots"
                           : "saving, then freeing the slots"},
      order);
  tools_.operations->Supersede(job, *operation);
  const Why why{.text = Because("paused", order),
                .order = order,
                .operation = operation->name(),
                .keeps_ranks = !discard};
  tools_.transitions->SetGoal(stored, v1::GOAL_RELEASE, why);
  tools_.raiser->Raise(stored, JobEvent::kRelease, why);
  return operation;
}

JobVerbs::Operated JobVerbs::Resume(v1::StoredJob& stored, const ResumeFrom& from,
                                    const Order& order) {
  const v1::Job& job = stored.job();
  // One that was paused because its ranks were lost goes back into the queue.
  if (job.state() != v1::PAUSED_RELEASED) RETURN_IF_ERROR(CheckKind(job, "resume"));
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kResume, "resume"));
  RETURN_IF_ERROR(bases_->Check(stored, from));
  if (job.goal() == v1::GOAL_RUN && !from.any())
    return WrongState(stored, "resume", "it is to run already");
  v1::Operation* operation = tools_.operations->Open(job,
                                                     {.verb = "resume",
                                                      .mode = from.fresh         ? "fresh"
                                                              : from.allow_older ? "allow-older"
                                                                                 : "",
                                                      .progress = "waiting for the ranks"},
                                                     order);
  // A release that is under way ends first, and the resume follows (FollowResume).
  if (job.state() != v1::RELEASING) tools_.operations->Supersede(job, *operation);
  bases_->Accept(stored, from);
  const Why why{.text = Because("resumed", order), .order = order, .operation = operation->name()};
  tools_.transitions->SetGoal(stored, v1::GOAL_RUN, why);
  tools_.raiser->Raise(stored, JobEvent::kResume, why);
  return operation;
}

JobVerbs::Operated JobVerbs::Checkpoint(v1::StoredJob& stored, const v1::CheckpointLabel& label,
                                        const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckKind(job, "checkpoint"));
  if (!TakesCommands(job.state())) return WrongState(stored, "checkpoint", "no rank could save");
  if (!HasCheckpoints(job)) return NoCheckpoints(job, "");
  if (const v1::Operation* running = tools_.operations->FindOpen(job, "checkpoint");
      running != nullptr) {
    return WrongState(stored, "another checkpoint",
                      fmt::format("{} is under way", running->name()));
  }
  v1::Operation* operation = tools_.operations->Open(
      job, {.verb = "checkpoint", .progress = "saving after the next step"}, order);
  tools_.commands->Give(
      stored,
      {.verb = v1::Command::CHECKPOINT_NOW, .operation = operation->name(), .label = &label},
      order);
  SetCondition(stored.mutable_job(), "Saving", Because("asked for", order),
               tools_.ledger->NowMicros());
  return operation;
}

JobVerbs::Operated JobVerbs::Profile(v1::StoredJob& stored, int steps, const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckKind(job, "profile"));
  if (job.state() != v1::RUNNING) {
    return WrongState(
        stored, "profile",
        job.state() == v1::PAUSED_HELD ? "its ranks are held and run no step" : "no step runs");
  }
  if (const v1::Operation* running = tools_.operations->FindOpen(job, "profile");
      running != nullptr) {
    return WrongState(stored, "another profile", fmt::format("{} is under way", running->name()));
  }
  v1::Operation* operation = tools_.operations->Open(
      job, {.verb = "profile", .progress = fmt::format("tracing the next {} steps", steps)}, order);
  tools_.commands->Give(
      stored,
      {.verb = v1::Command::PROFILE, .operation = operation->name(), .profile_steps = steps},
      order);
  return operation;
}

JobVerbs::Operated JobVerbs::Decode(v1::StoredJob& stored, const v1::Generate& generate,
                                    const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckKind(job, "generate --in-job"));
  if (job.spec().training().eval().decode_tokens() == 0) {
    return rpc::WithReason(
        base::FailedPrecondition(
            "job '{}' has planned no memory for texts: training.eval.decode_tokens is 0, and is "
            "given when a job is submitted; without --in-job a checkpoint of it is read",
            job.name()),
        reason::kNoTextMemory);
  }
  if (job.state() != v1::RUNNING) {
    return WrongState(stored, "generate --in-job",
                      job.state() == v1::PAUSED_HELD ? "its ranks are held and write between steps"
                                                     : "no step runs");
  }
  if (const v1::Operation* running = tools_.operations->FindOpen(job, "decode");
      running != nullptr) {
    return WrongState(stored, "another generate --in-job",
                      fmt::format("{} is under way", running->name()));
  }
  v1::Operation* operation = tools_.operations->Open(
      job, {.verb = "decode", .progress = "writing behind the next step"}, order);
  tools_.commands->Give(
      stored, {.verb = v1::Command::DECODE, .operation = operation->name(), .generate = &generate},
      order);
  return operation;
}

JobVerbs::Operated JobVerbs::Cancel(v1::StoredJob& stored, bool with_save, const Order& order) {
  const v1::Job& job = stored.job();
  if (job.state() == v1::STOPPING) {
    // A second user's cancel while the first is under way: the same operation.
    if (const v1::Operation* open = tools_.operations->FindOpen(job, "cancel"); open != nullptr)
      return open;
  }
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kCancel, "cancel"));
  v1::Operation* operation =
      tools_.operations->Open(job,
                              {.verb = "cancel",
                               .mode = with_save ? "checkpoint" : "",
                               .progress = with_save ? "saving, then stopping" : "stopping"},
                              order);
  tools_.operations->Supersede(job, *operation);
  const Why why{.text = Because("cancelled", order),
                .order = order,
                .operation = operation->name(),
                .with_save = with_save};
  tools_.transitions->SetGoal(stored, v1::GOAL_STOP, why);
  tools_.raiser->Raise(stored, JobEvent::kCancel, why);
  return operation;
}

JobVerbs::Operated JobVerbs::Kill(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  RETURN_IF_ERROR(CheckVerb(stored, JobEvent::kKill, "kill"));
  v1::Operation* operation =
      tools_.operations->Open(job, {.verb = "kill", .progress = "ending the processes"}, order);
  tools_.operations->Supersede(job, *operation);
  // A job that stops already keeps its message: why it came to stop is not this kill.
  const std::string killed = Because("killed", order);
  const Why why{.text = job.state() == v1::STOPPING ? job.message() : killed,
                .order = order,
                .operation = operation->name(),
                .kill_reason = killed};
  tools_.transitions->SetGoal(stored, v1::GOAL_STOP, why);
  tools_.raiser->Raise(stored, JobEvent::kKill, why);
  return operation;
}

JobVerbs::Operated JobVerbs::Delete(v1::StoredJob& stored, const Order& order) {
  const v1::Job& job = stored.job();
  if (!IsFinal(job.state())) return WrongState(stored, "delete", "it has not ended");
  v1::Operation* operation = tools_.operations->Open(job, {.verb = "delete"}, order);
  tools_.operations->Succeed(*operation,
                             fmt::format("job {} is forgotten; its checkpoints stay", job.name()));
  tools_.runtimes->Forget(job.uid());
  tools_.ledger->EraseJob(std::string(job.uid()));
  return operation;
}

void JobVerbs::SpecChanged(v1::StoredJob& stored, const Order& order) {
  // The newest wins: it carries the whole job.
  PendingCommands::Drop(stored, v1::Command::UPDATE);
  // Ranks of a next epoch are assigned with what the job is then.
  const v1::JobState state = stored.job().state();
  if (IsActive(state) && state != v1::RECOVERING)
    tools_.commands->Give(stored, {.verb = v1::Command::UPDATE}, order);
}

void JobVerbs::CommandHold(v1::StoredJob& stored, const Why& why) {
  tools_.commands->Give(stored, {.verb = v1::Command::HOLD, .operation = why.operation}, why.order);
}

void JobVerbs::CommandResume(v1::StoredJob& stored, const Why& why) {
  tools_.commands->Give(stored, {.verb = v1::Command::RESUME, .operation = why.operation},
                        why.order);
}

void JobVerbs::DropUnheardPauses(v1::StoredJob& stored) {
  tools_.commands->DropUnheard(stored, v1::Command::HOLD);
  tools_.commands->DropUnheard(stored, v1::Command::RESUME);
}

void JobVerbs::HoldAtStart(v1::StoredJob& stored, const Why& why) {
  DropUnheardPauses(stored);
  // Ranks that were assigned with it hold by themselves.
  if (stored.assigned_hold() && !PendingCommands::Has(stored, v1::Command::RESUME)) return;
  CommandHold(stored, why);
}

void JobVerbs::RunAtStart(v1::StoredJob& stored, const Why& why) {
  DropUnheardPauses(stored);
  if (stored.assigned_hold() || PendingCommands::Has(stored, v1::Command::HOLD))
    CommandResume(stored, why);
}

void JobVerbs::Await(const Why& why, std::string_view what) {
  v1::Operation* operation = tools_.ledger->FindOperation(why.operation);
  if (operation != nullptr) tools_.operations->Progress(*operation, what);
}

void JobVerbs::FollowResume(v1::StoredJob& stored) {
  if (stored.job().goal() != v1::GOAL_RUN) return;
  const v1::Operation* resume = tools_.operations->FindOpen(stored.job(), "resume");
  Why why{.text = "resumed"};
  if (resume != nullptr) {
    why.order = {resume->actor(), resume->reason(), resume->request_id()};
    why.operation = resume->name();
    why.text = Because("resumed", why.order);
  }
  tools_.raiser->Raise(stored, JobEvent::kResume, why);
}

void JobVerbs::SettleOperations(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  const bool released = job.state() == v1::PAUSED_RELEASED;
  for (v1::Operation* operation : tools_.ledger->OpenOperations(job.uid())) {
    if (operation->verb() == "pause" && released) {
      if (job.has_last_checkpoint()) *operation->mutable_checkpoint() = job.last_checkpoint();
      tools_.operations->Succeed(*operation, job.message());
    } else if (operation->mode() == "hold" && job.state() == v1::PAUSED_HELD) {
      if (operation->word_step() == 0) operation->set_step(job.ranks(0).step());
      tools_.operations->Succeed(*operation, job.message());
    } else if (operation->verb() == "resume" && job.state() == v1::RUNNING &&
               !PendingCommands::WaitsFor(stored, operation->name())) {
      tools_.operations->Succeed(*operation,
                                 job.resumed_from_step() > 0 && operation->step() == 0
                                     ? fmt::format("RUNNING from step {}", job.resumed_from_step())
                                     : "RUNNING");
    }
  }
}

}  // namespace mt::daemon
