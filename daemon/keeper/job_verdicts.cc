// Faults, the end of training and deadlines.
#include "daemon/keeper/job_verdicts.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/control/epoch.h"
#include "common/control/rank_exit_codes.h"
#include "common/spec/job_kind.h"
#include "daemon/jobs/restarts.h"
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

RestartFacts FactsOf(Ledger* ledger, const v1::Job& job, const Verdict& verdict) {
  // Of a placement whose ranks were not ready, ready_us is of one before.
  const bool was_ready = TakesCommands(job.state());
  return {.budget = BudgetOf(verdict),
          .step = job.last_step().step(),
          .now_us = ledger->NowMicros(),
          .ready_us = was_ready ? job.ready_us() : 0,
          .job_uid = job.uid()};
}

// What a job fails with that gets no other epoch.
Verdict LastVerdict(const Verdict& verdict, const RestartChoice& choice) {
  Verdict last = verdict;
  if (choice.no_progress) {
    last.message = fmt::format("{}; the last fault: {}: {}", choice.why,
                               v1::Cause_Name(verdict.cause), verdict.message);
    last.cause = v1::NO_PROGRESS;
  } else if (!choice.why.empty()) {
    last.message += fmt::format("; {}", choice.why);
  }
  return last;
}

std::string RecoverText(const v1::Job& job, const Verdict& verdict, int64_t wait_us) {
  return fmt::format(
      "epoch {} ends, another one follows{}: {}", control::EpochText(job.epoch()),
      wait_us == 0 ? "" : fmt::format(" in {:.0f} s", static_cast<double>(wait_us) / 1e6),
      verdict.message);
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

void JobVerdicts::NoteFault(v1::StoredJob& stored, const Verdict& verdict) {
  v1::Job* job = stored.mutable_job();
  v1::Restarts* restarts = job->mutable_restarts();
  restarts->set_cause(verdict.cause);
  restarts->set_rank(verdict.rank);
  restarts->set_message(verdict.message);
  restarts->set_time_us(tools_.ledger->NowMicros());
  restarts->set_step(job->last_step().step());
  stored.set_restart_budget(static_cast<int>(BudgetOf(verdict)));
  stored.set_secondary_verdict(verdict.secondary);
  if (verdict.rank >= 0 && verdict.rank < job->ranks_size() &&
      control::MeaningOfExit(verdict.exit_code).elsewhere) {
    stored.add_left_out_nodes(job->ranks(verdict.rank).node());
  }
  tools_.ledger->AddEvent(
      {.type = verdict.rank >= 0 ? "RankFailed" : "EpochFailed",
       .message = fmt::format("{}: {}", v1::Cause_Name(verdict.cause), verdict.message),
       .job_uid = job->uid(),
       .cause = verdict.cause,
       .step = job->last_step().step()});
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobVerdicts::Fail(v1::StoredJob& stored, const Verdict& verdict) {
  const v1::Job& job = stored.job();
  if (job.state() == v1::RECOVERING) {
    tools_.raiser->Raise(stored, JobEvent::kNotRetried,
                         {.text = verdict.message, .cause = verdict.cause, .verdict = &verdict});
    return;
  }
  v1::Restarts spent = job.restarts();
  RestartChoice choice;
  if (JobStateMachine::Allows(PositionOf(job), JobEvent::kRecover)) {
    choice = SpendRestart(job.spec(), FactsOf(tools_.ledger, job, verdict), &spent);
  }
  if (!choice.allowed) {
    const Verdict last = LastVerdict(verdict, choice);
    tools_.raiser->Raise(stored, JobEvent::kFault,
                         {.text = last.message, .cause = last.cause, .verdict = &last});
    return;
  }
  *stored.mutable_job()->mutable_restarts() = std::move(spent);
  NoteFault(stored, verdict);
  const int64_t wait_us =
      std::max<int64_t>(0, job.restarts().not_before_us() - tools_.ledger->NowMicros());
  tools_.runtimes->Of(job).retry_at = tools_.clock->Now() + std::chrono::microseconds(wait_us);
  tools_.raiser->Raise(stored, JobEvent::kRecover,
                       {.text = RecoverText(job, verdict, wait_us),
                        .cause = verdict.cause,
                        .step = job.last_step().step(),
                        .kill_reason = verdict.message});
}

void JobVerdicts::AnotherFault(v1::StoredJob& stored, const std::string& node,
                               const Verdict& verdict) {
  const v1::Job& job = stored.job();
  if (!stored.secondary_verdict() || verdict.secondary) return;
  if (tools_.runtimes->Of(job).kill_acked.contains(node) && !verdict.own_fault) return;
  const auto before = static_cast<control::RestartBudget>(stored.restart_budget());
  const RestartChoice choice = MoveRestart(job.spec(), before, FactsOf(tools_.ledger, job, verdict),
                                           stored.mutable_job()->mutable_restarts());
  if (!choice.allowed) return Fail(stored, LastVerdict(verdict, choice));
  NoteFault(stored, verdict);
}

void JobVerdicts::Recovered(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  if (stored.restart_budget() == 0) return;
  stored.clear_restart_budget();
  const v1::Restarts& restarts = job.restarts();
  const int64_t from = job.resumed_from_step();
  const double seconds =
      static_cast<double>(tools_.ledger->NowMicros() - restarts.time_us()) / 1'000'000;
  tools_.ledger->AddEvent(
      {.type = "Recovered",
       .message = fmt::format("epoch {} goes on from step {}: {} steps are trained again, {:.1f} s "
                              "after the fault",
                              control::EpochText(job.epoch()), from,
                              std::max<int64_t>(0, restarts.step() - from), seconds),
       .job_uid = job.uid(),
       .step = from});
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobVerdicts::RankFailed(v1::StoredJob& stored, const std::string& node,
                             const Verdict& verdict) {
  const v1::Job& job = stored.job();
  if (job.state() == v1::RECOVERING) return AnotherFault(stored, node, verdict);
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
