// Stops, kills, and the end of epochs and jobs.
#include "daemon/keeper/job_teardown.h"

#include <algorithm>

#include "common/control/numbers.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/keeper/allocations.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/closed.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_runtimes.h"
#include "daemon/keeper/pending_commands.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

bool IsEnding(const v1::Job& job) {
  return job.state() == v1::STOPPING || job.state() == v1::RELEASING;
}

bool IsFenced(const v1::StoredJob& stored) {
  return stored.job().state() == v1::RECOVERING && stored.closed_epoch() == stored.job().epoch();
}

bool HasRanksAtWork(const v1::Job& job) {
  return std::ranges::any_of(job.ranks(), [](const v1::RankStatus& rank) {
    return rank.state() == v1::TRAINING || rank.state() == v1::HELD;
  });
}

void JobTeardown::CommandStop(v1::StoredJob& stored, const Why& why) {
  v1::Job* job = stored.mutable_job();
  // Where the coordinator has judged by itself, it is who stops the job.
  const bool judged = why.verdict != nullptr;
  v1::StopOrder* stop = stored.mutable_stop();
  stop->set_with_save(why.with_save && HasCheckpoints(*job));
  stop->set_keeps_ranks(stop->with_save() && why.keeps_ranks);
  stop->set_discard(job->state() == v1::RELEASING && !why.keeps_ranks);
  stop->set_command_id(PendingCommands::NewStopId(*job));
  stop->set_reason(judged ? why.text : why.order.reason);
  stop->set_actor(judged ? "coordinator" : why.order.actor);
  if (stop->with_save()) SetCondition(job, "Saving", why.text, tools_.ledger->NowMicros());
  // A stop without a save takes effect at the end of a step (P1); one with a save has P5.
  tools_.runtimes->Of(*job).stop_deadline =
      tools_.clock->Now() + (stop->with_save() ? control::kStopGrace : control::kStepLimit);
  tools_.ledger->MarkJob(stored, Change::kState);
  tools_.commands->SendStop(stored);
}

void JobTeardown::ForgetStop(v1::StoredJob& stored) {
  stored.clear_stop();
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobTeardown::AmendStop(v1::StoredJob& stored, const Why& why) {
  if (!stored.has_stop()) return;
  stored.mutable_stop()->set_discard(!why.keeps_ranks);
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobTeardown::StopAnyway(v1::StoredJob& stored) {
  v1::StopOrder* stop = stored.mutable_stop();
  stop->set_keeps_ranks(false);
  stop->set_command_id(PendingCommands::NewStopId(stored.job()));
  tools_.ledger->MarkJob(stored, Change::kState);
  tools_.commands->SendStop(stored);
}

void JobTeardown::KillUnlessStopping(v1::StoredJob& stored, const Why& why,
                                     std::string_view reason) {
  // A stop that is under way is followed; a kill that is under way, too.
  if (stored.has_stop() || stored.killing()) return;
  // What a restored store says to start may train.
  const bool may_train = IsBeforeRestore(tools_.ledger, stored.job().epoch()) &&
                         !tools_.ledger->AllocationsOfJob(stored.job().uid()).empty();
  if (may_train || HasRanksAtWork(stored.job())) return CommandStop(stored, why);
  KillRanks(stored, reason);
}

void JobTeardown::KillRanks(v1::StoredJob& stored, std::string_view reason) {
  KillAll(stored, reason);
  FinishIfGone(stored);
}

void JobTeardown::AwaitExit(v1::StoredJob& stored) {
  tools_.runtimes->Of(stored.job()).stop_deadline = tools_.clock->Now() + control::kStepLimit;
  FinishIfGone(stored);
}

void JobTeardown::StopAgain(v1::StoredJob& stored) {
  if (stored.killing()) return KillAll(stored, stored.job().message());
  if (stored.has_stop()) {
    stored.mutable_stop()->set_command_id(PendingCommands::NewStopId(stored.job()));
    tools_.ledger->MarkJob(stored, Change::kState);
    tools_.commands->SendStop(stored);
  }
  tools_.runtimes->Of(stored.job()).stop_deadline =
      tools_.clock->Now() + (stored.stop().with_save() ? control::kStopGrace : control::kStepLimit);
}

void JobTeardown::KillAll(v1::StoredJob& stored, std::string_view reason) {
  const JobEpoch current{stored.job().uid(), stored.job().epoch()};
  if (!stored.killing()) {
    stored.set_killing(true);
    tools_.ledger->MarkJob(stored, Change::kState);
  }
  tools_.runtimes->Of(stored.job()).kill_again = tools_.clock->Now() + control::kAbortAllGone;
  for (v1::StoredAllocation* allocation : tools_.ledger->AllocationsOfJob(current.job_uid)) {
    if (allocation->epoch() != current.epoch) continue;
    if (allocation->state() == v1::UNREACHABLE) {
      MoveRanksOf(tools_.ledger, stored, allocation->node(), v1::FENCED);
      continue;
    }
    MoveAllocation(tools_.ledger, *allocation, v1::FREEING);
    tools_.commands->SendKill(current, allocation->node(), reason);
  }
}

void JobTeardown::AllocationGone(const AllocationKey& key, std::string_view why) {
  const v1::StoredAllocation* allocation = tools_.ledger->FindAllocation(key);
  if (allocation == nullptr) return;
  const bool asked_for = allocation->state() == v1::FREEING || !IsOpen(tools_.ledger, *allocation);
  tools_.ledger->EraseAllocation(key);
  v1::StoredJob* stored = tools_.ledger->FindJob(key.job_uid);
  if (stored == nullptr || stored->job().epoch() != key.epoch) return;
  const v1::Job& job = stored->job();
  if (!asked_for && IsActive(job.state())) {
    const bool others = !tools_.ledger->AllocationsOfJob(key.job_uid).empty();
    const bool done = std::ranges::all_of(job.ranks(), [&](const v1::RankStatus& rank) {
      return rank.node() != key.node || rank.state() == v1::DONE;
    });
    // Ranks that are done may be heard of before rank 0 says that training ended; the last one may
    // not.
    if (!done || !others) {
      tools_.raiser->Fail(*stored,
                          {.cause = v1::INTERNAL,
                           .rank = -1,
                           .message = fmt::format("ranks on node {} are gone: {}", key.node, why),
                           .last_log_lines = {}});
      if (job.state() != v1::RECOVERING) return;
    }
  }
  const bool recovers = job.state() == v1::RECOVERING;
  for (v1::RankStatus& rank : *stored->mutable_job()->mutable_ranks()) {
    const bool unheard = rank.state() == v1::FENCED || rank.state() == v1::UNKNOWN;
    if (rank.node() == key.node && (unheard || (recovers && !RankHasEnded(rank.state())))) {
      rank.set_state(v1::DONE);
      tools_.ledger->MarkJob(*stored, Change::kRanks);
    }
  }
  FinishIfGone(*stored);
}

void JobTeardown::AllocationForgotten(const AllocationKey& key) {
  tools_.ledger->EraseAllocation(key);
  v1::StoredJob* stored = tools_.ledger->FindJob(key.job_uid);
  if (stored != nullptr && stored->job().epoch() == key.epoch) FinishIfGone(*stored);
}

// An allocation on an unreachable node counts: only its agent, or an operator, knows that it is
// gone. For another epoch it is enough that one rank of the old one is known to have ended: a step
// needs all of them, and what the others save is refused by the fence.
bool JobTeardown::IsGone(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  const bool one_ended = std::ranges::any_of(
      job.ranks(), [](const v1::RankStatus& rank) { return RankHasEnded(rank.state()); });
  // A closed epoch is one already, whatever the job does next.
  const bool leaves_lost =
      (job.state() == v1::RECOVERING && one_ended) || stored.closed_epoch() == job.epoch();
  for (const v1::StoredAllocation* allocation : tools_.ledger->AllocationsOfJob(job.uid())) {
    if (allocation->epoch() != job.epoch() || allocation->state() == v1::ORPHANED) continue;
    if (allocation->state() != v1::UNREACHABLE || !leaves_lost) return false;
  }
  return true;
}

void JobTeardown::FinishIfGone(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  if ((!IsEnding(*job) && job->state() != v1::RECOVERING) || IsFenced(stored)) return;
  if (!IsGone(stored)) return;
  if (job->state() == v1::RECOVERING) {
    // Steps that were reported late count, too.
    job->mutable_restarts()->set_best_step(
        std::max(job->restarts().best_step(), job->last_step().step()));
    stored.set_closed_epoch(job->epoch());
    stored.clear_secondary_verdict();
    return CloseEpoch(stored);
  }
  if (HasUnsavedSteps(stored)) tools_.operations->FailUnsaved(stored);
  if (job->state() == v1::STOPPING) {
    tools_.raiser->Raise(stored, JobEvent::kRanksGone, {.text = std::string(job->message())});
    return;
  }
  const int64_t saved = SavedStep(stored);
  if (job->last_step().step() > saved && !HasCondition(*job, "CheckpointStale")) {
    SetCondition(job, "CheckpointStale",
                 fmt::format("it had trained to step {}", job->last_step().step()),
                 tools_.ledger->NowMicros());
  }
  tools_.operations->FailSaves(*job);
  stored.set_closed_epoch(job->epoch());
  tools_.raiser->Raise(
      stored, JobEvent::kReleased,
      {.text = saved == 0 ? "released; nothing was saved, it starts over"
                          : fmt::format("released; it goes on from step {}", saved),
       .step = saved});
}

void JobTeardown::CloseEpoch(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  tools_.operations->FailProfiles(*job);  // nobody answers them any more
  tools_.operations->FailDecodes(*job);
  stored.clear_stop();
  tools_.commands->CloseEpoch(stored);
  stored.clear_kept_steps();
  stored.clear_kept_term();
  stored.clear_rank_seq();
  stored.clear_killing();
  stored.clear_assigned_hold();
  ClearCondition(job, "Saving");
  ClearCondition(job, "Waiting");  // for the next epoch: where it waits on, it says so anew
  ClearCondition(job, "NodeUnreachable");
  ClearCondition(job, "NoProgress");
  tools_.runtimes->Of(*job).kill_acked.clear();
  for (const auto& [space, key] : tools_.rendezvous->Erase(job->uid())) {
    tools_.ledger->EraseRendezvous(space, key);
  }
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobTeardown::Finish(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  job->set_finished_us(tools_.ledger->NowMicros());
  job->set_goal(v1::GOAL_STOP);
  ClearCondition(job, "Waiting");
  if (job->state() != v1::FAILED) {
    job->set_failed_rank(-1);
    job->set_cause(v1::CAUSE_UNSPECIFIED);
  }
  tools_.operations->EndAll(*job);
  CloseEpoch(stored);
  tools_.runtimes->Forget(job->uid());
}

void JobTeardown::FailSaves(v1::StoredJob& stored) {
  PendingCommands::Drop(stored, v1::Command::CHECKPOINT_NOW);
  tools_.operations->FailClosed(stored.job());
}

void JobTeardown::Tick(v1::StoredJob& stored) {
  if (!IsEnding(stored.job()) && (stored.job().state() != v1::RECOVERING || IsFenced(stored)))
    return;
  const JobRuntime& runtime = tools_.runtimes->Of(stored.job());
  const bool killing = stored.killing();
  if (tools_.clock->Now() < (killing ? runtime.kill_again : runtime.stop_deadline)) return;
  KillRanks(stored, killing ? "still there" : "the time to stop is over");
}

void JobTeardown::Recover(v1::StoredJob& stored) {
  const base::MonotonicTime now = tools_.clock->Now();
  JobRuntime& runtime = tools_.runtimes->Of(stored.job());
  runtime.placement_deadline = now + control::kPlacementAnswer;
  runtime.stop_deadline =
      now + (stored.stop().with_save() ? control::kStopGrace : control::kStepLimit);
  runtime.kill_again = now + control::kAbortAllGone;
}

}  // namespace mt::daemon
