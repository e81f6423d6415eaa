// Faults, the end of training and deadlines.
#include "daemon/keeper/job_verdicts.h"

#include <string>
#include <utility>

#include "common/spec/job_kind.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_placement.h"
#include "daemon/keeper/job_runtimes.h"
#include "daemon/keeper/job_teardown.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

std::string EndText(const v1::Job& job, const v1::TrainingEnded& ended) {
  if (spec::KindOf(job.spec()).reads) return ended.message();  // what it has read
  if (!ended.completed())
    return fmt::format("{} was reached at step {}", ended.exit_condition(), ended.last_step());
  // Without a step of its own it tells what the ranks say: there was nothing to do.
  if (ended.last_step() <= job.resumed_from_step() && ended.message().starts_with("nothing to do"))
    return ended.message();
  return fmt::format("trained to step {}", ended.last_step());
}

}  // namespace

void JobVerdicts::Record(v1::StoredJob& stored, const Verdict& verdict) {
  v1::Job* job = stored.mutable_job();
  job->set_cause(verdict.cause);
  job->set_failed_rank(verdict.rank);
  job->set_message(verdict.message);
  job->mutable_last_log_lines()->Assign(verdict.last_log_lines.begin(),
                                        verdict.last_log_lines.end());
  stored.set_secondary_verdict(verdict.secondary);
  tools_.ledger->AddEvent(
      {.type = verdict.rank >= 0 ? "RankFailed" : "JobFailed",
       .message = fmt::format("{}: {}", v1::Cause_Name(verdict.cause), verdict.message),
       .job_uid = job->uid(),
       .cause = verdict.cause,
       .step = job->last_step().step()});
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobVerdicts::RankFailed(v1::StoredJob& stored, const std::string& node,
                             const Verdict& verdict) {
  const v1::Job& job = stored.job();
  if (IsActive(job.state())) {
    tools_.raiser->Fail(stored, verdict);
    return;
  }
  if (!IsEnding(job)) return;
  // A fault of a rank's own is the cause of what others made of it, even where it is heard after
  // the kill that those have brought about.
  const bool better = stored.secondary_verdict() && verdict.own_fault;
  if (tools_.runtimes->Of(job).kill_acked.contains(node) && !better) return;  // the kill's doing
  if (job.stopping_to() == v1::QUEUED) return;  // all leave, since the first one did
  if (job.stopping_to() == v1::FAILED && stored.killing()) {
    if (stored.secondary_verdict() && !verdict.secondary) Record(stored, verdict);
    return;
  }
  // The others would wait for this one. What the job has reached, or what a user asked, stands.
  tools_.ledger->AddEvent(
      {.type = "RankFailed",
       .message = fmt::format("while {}: {}", PositionName(PositionOf(job)), verdict.message),
       .job_uid = job.uid(),
       .node = node,
       .cause = verdict.cause});
  if (stored.has_stop() && stored.stop().with_save()) {
    SetCondition(stored.mutable_job(), "CheckpointStale",
                 fmt::format("a rank failed before the last save: {}", verdict.message),
                 tools_.ledger->NowMicros());
    tools_.ledger->MarkJob(stored, Change::kState);
  }
  teardown_->KillAll(stored, verdict.message);
}

void JobVerdicts::TrainingEnded(v1::StoredJob& stored, const v1::TrainingEnded& ended) {
  v1::Job* job = stored.mutable_job();
  placement_->RanksMoved(stored, /*training=*/true);
  if (ended.final_save_failed()) {
    SetCondition(job, "CheckpointStale",
                 fmt::format("the last save failed: {}", job->last_checkpoint_error().empty()
                                                             ? ended.message()
                                                             : job->last_checkpoint_error()),
                 tools_.ledger->NowMicros());
    tools_.ledger->MarkJob(stored, Change::kState);
  }
  if (!TakesCommands(job->state())) return;  // it was told to stop
  if (ended.final_save_failed() && job->spec().checkpoint().strict()) {
    tools_.raiser->Fail(
        stored,
        {.cause = v1::STORAGE,
         .rank = 0,
         .message = fmt::format("the last save failed (checkpoint.strict): {}", ended.message())});
    return;
  }
  const bool reached = ended.completed() || !ended.exit_condition().empty();
  if (!reached || job->state() == v1::PAUSED_HELD) {
    tools_.raiser->Fail(stored,
                        {.cause = v1::INTERNAL,
                         .rank = 0,
                         .message = fmt::format("training stopped at step {} without an order: {}",
                                                ended.last_step(), ended.message())});
    return;
  }
  std::string text = EndText(*job, ended);
  if (job->skipped_steps() > 0)
    text += fmt::format("; steps that were skipped: {}", job->skipped_steps());
  tools_.raiser->Raise(stored, JobEvent::kTrainingEnded,
                       {.text = std::move(text), .step = ended.last_step()});
}

bool JobVerdicts::IsOverdue(const v1::Job& job) const {
  const auto allowed = std::chrono::microseconds(job.deadline_us() - job.created_us());
  return job.deadline_us() != 0 && tools_.clock->Now() >= tools_.runtimes->Of(job).born + allowed &&
         JobStateMachine::Allows(PositionOf(job), JobEvent::kDeadline);
}

void JobVerdicts::DeadlineOver(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  const Verdict verdict{.cause = v1::DEADLINE,
                        .rank = -1,
                        .message = fmt::format("its deadline of {} s is over",
                                               (job.deadline_us() - job.created_us()) / 1'000'000),
                        .last_log_lines = {}};
  tools_.raiser->Raise(stored, JobEvent::kDeadline,
                       {.text = verdict.message, .cause = verdict.cause, .verdict = &verdict});
}

}  // namespace mt::daemon
