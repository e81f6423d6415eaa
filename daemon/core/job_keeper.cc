#include "daemon/core/job_keeper.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/rpc/control_numbers.h"
#include "daemon/core/worker_hub.h"
#include "daemon/jobs/rank_states.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

// R2: none before the first, then base * 2^(n - 2).
std::chrono::seconds RetryDelay(int failures) {
  if (failures < 2) return std::chrono::seconds(0);
  const int doublings = std::min(failures - 2, 10);
  return std::min(rpc::kRetryBase * (1 << doublings), rpc::kRetryCap);
}

JobPosition PositionOf(const v1::Job& job) { return {job.state(), job.stopping_to()}; }

bool HoldsRanks(v1::AllocationState state) {
  return state == v1::RESERVED || state == v1::ACCEPTED || state == v1::ACTIVE;
}

}  // namespace

bool JobKeeper::Apply(v1::StoredJob& stored, JobEvent event, std::string_view why) {
  v1::Job* job = stored.mutable_job();
  const StatusOr<JobPosition> next = machine_.Next(PositionOf(*job), event);
  if (!next.ok()) {
    log::Warn("transition refused",
              {{"job", job->name()}, {"error", base::Message(next.status())}});
    return false;
  }
  const std::string from = PositionName(PositionOf(*job));
  job->set_state(next->state);
  job->set_stopping_to(next->stopping_to);
  job->set_message(std::string(why));
  parts_.ledger->AddEvent({.type = "StateChanged",
                           .message = fmt::format("{} -> {}: {}", from, PositionName(*next), why),
                           .job_uid = job->uid()});
  log::Info("job changed state",
            {{"job", job->name()}, {"from", from}, {"to", PositionName(*next)}, {"why", why}});
  if (IsFinal(next->state)) Finished(stored);
  parts_.ledger->MarkJob(stored, Change::kState);
  return true;
}

void JobKeeper::Placed(v1::StoredJob& stored) {
  ClearCondition(stored.mutable_job(), "Waiting");
  if (!Apply(stored, JobEvent::kPlaced, "slots are reserved")) return;
  runtime_[stored.job().uid()].placement_deadline = parts_.clock->Now() + rpc::kPlacementAnswer;
}

bool JobKeeper::MoveAllocation(v1::StoredAllocation& allocation, v1::AllocationState to) {
  if (allocation.state() == to) return true;
  if (!AllocationMayMove(allocation.state(), to)) {
    log::Warn("allocation move refused", {{"job_uid", allocation.job_uid()},
                                          {"node", allocation.node()},
                                          {"from", v1::AllocationState_Name(allocation.state())},
                                          {"to", v1::AllocationState_Name(to)}});
    return false;
  }
  allocation.set_state(to);
  parts_.ledger->MarkAllocation(allocation);
  return true;
}

void JobKeeper::AllocationAccepted(v1::StoredJob& stored, v1::StoredAllocation& allocation) {
  if (allocation.state() != v1::RESERVED) return;
  MoveAllocation(allocation, v1::ACCEPTED);
  if (stored.job().state() != v1::ADMITTED) return;
  const auto allocations = parts_.ledger->AllocationsOfJob(stored.job().uid());
  const bool all = std::ranges::none_of(allocations, [&](const v1::StoredAllocation* a) {
    return a->epoch() == stored.job().epoch() && a->state() == v1::RESERVED;
  });
  if (!all) return;
  stored.set_placement_failures(0);
  Apply(stored, JobEvent::kAllAccepted, "all agents accepted");
}

void JobKeeper::AllocationRefused(v1::StoredJob& stored, const AllocationKey& key,
                                  std::string_view why) {
  parts_.ledger->EraseAllocation(key);
  if (stored.job().state() == v1::ADMITTED && stored.job().epoch() == key.epoch) {
    PlacementFailed(stored, fmt::format("node {} refused: {}", key.node, why));
    return;
  }
  FinishIfGone(stored);
}

void JobKeeper::PlacementFailed(v1::StoredJob& stored, std::string_view why) {
  stored.set_placement_failures(stored.placement_failures() + 1);
  const auto delay = RetryDelay(stored.placement_failures());
  const JobEpoch closed{stored.job().uid(), stored.job().epoch()};
  for (v1::StoredAllocation* allocation : parts_.ledger->AllocationsOfJob(closed.job_uid)) {
    if (!HoldsRanks(allocation->state())) continue;
    MoveAllocation(*allocation, v1::FREEING);
    SendKill(closed, allocation->node(), "placed again");
  }
  if (!Apply(stored, JobEvent::kPlacementFailed, why)) return;
  stored.mutable_job()->clear_ranks();
  runtime_[closed.job_uid].retry_at = parts_.clock->Now() + delay;
}

void JobKeeper::SetVerdict(v1::StoredJob& stored, const Verdict& verdict) {
  v1::Job* job = stored.mutable_job();
  job->set_cause(verdict.cause);
  job->set_failed_rank(verdict.rank);
  job->set_message(verdict.message);
  job->mutable_last_log_lines()->Assign(verdict.last_log_lines.begin(),
                                        verdict.last_log_lines.end());
  stored.set_secondary_verdict(verdict.secondary);
  parts_.ledger->AddEvent(
      {.type = verdict.rank >= 0 ? "RankFailed" : "JobFailed",
       .message = fmt::format("{}: {}", v1::Cause_Name(verdict.cause), verdict.message),
       .job_uid = job->uid()});
  parts_.ledger->MarkJob(stored, Change::kState);
}

void JobKeeper::Fail(v1::StoredJob& stored, const Verdict& verdict) {
  if (!Apply(stored, JobEvent::kFault, verdict.message)) return;
  SetVerdict(stored, verdict);
  KillAll(stored, verdict.message);
  FinishIfGone(stored);
}

void JobKeeper::RankFailed(v1::StoredJob& stored, const std::string& node, const Verdict& verdict) {
  const v1::Job& job = stored.job();
  if (IsActive(job.state())) {
    Fail(stored, verdict);
    return;
  }
  if (job.state() != v1::STOPPING) return;
  const Runtime& runtime = runtime_[job.uid()];
  if (runtime.kill_acked.contains(node)) return;  // the kill's doing
  if (job.stopping_to() == v1::FAILED) {
    if (stored.secondary_verdict() && !verdict.secondary) SetVerdict(stored, verdict);
    return;
  }
  // The others would wait for this one. What the job has reached (or the user's word) stands.
  parts_.ledger->AddEvent(
      {.type = "RankFailed",
       .message = fmt::format("while {}: {}", PositionName(PositionOf(job)), verdict.message),
       .job_uid = job.uid(),
       .node = node});
  if (job.stopping_to() == v1::CANCELLED && stored.stop().with_save()) {
    SetCondition(stored.mutable_job(), "CheckpointStale",
                 fmt::format("a rank failed before the last save: {}", verdict.message),
                 parts_.ledger->NowMicros());
    parts_.ledger->MarkJob(stored, Change::kState);
  }
  KillAll(stored, verdict.message);
}

void JobKeeper::RanksMoved(v1::StoredJob& stored, bool training) {
  const v1::Job& job = stored.job();
  if (job.state() != v1::STARTING) return;
  const bool all_ready = std::ranges::all_of(
      job.ranks(), [](const v1::RankStatus& rank) { return RankIsReady(rank.state()); });
  if (all_ready || training) Apply(stored, JobEvent::kAllReady, "all ranks are ready");
}

void JobKeeper::TrainingEnded(v1::StoredJob& stored, const v1::TrainingEnded& ended) {
  v1::Job* job = stored.mutable_job();
  RanksMoved(stored, /*training=*/true);
  if (ended.final_save_failed()) {
    SetCondition(job, "CheckpointStale",
                 fmt::format("the last save failed: {}", job->last_checkpoint_error().empty()
                                                             ? ended.message()
                                                             : job->last_checkpoint_error()),
                 parts_.ledger->NowMicros());
    parts_.ledger->MarkJob(stored, Change::kState);
  }
  if (job->state() != v1::RUNNING) return;
  if (ended.final_save_failed() && job->spec().checkpoint().strict()) {
    Fail(stored,
         {.cause = v1::STORAGE,
          .rank = 0,
          .message = fmt::format("the last save failed (checkpoint.strict): {}", ended.message())});
    return;
  }
  if (!ended.completed()) {
    Fail(stored, {.cause = v1::INTERNAL,
                  .rank = 0,
                  .message = fmt::format("training stopped at step {} without an order: {}",
                                         ended.last_step(), ended.message())});
    return;
  }
  Apply(stored, JobEvent::kTrainingEnded, fmt::format("trained to step {}", ended.last_step()));
  runtime_[job->uid()].stop_deadline = parts_.clock->Now() + rpc::kStepLimit;
  FinishIfGone(stored);
}

void JobKeeper::Cancel(v1::StoredJob& stored, const v1::StopOrder& order) {
  const bool training = stored.job().state() == v1::RUNNING;
  *stored.mutable_stop() = order;
  const std::string why = fmt::format("cancelled by {}{}{}", order.actor(),
                                      order.reason().empty() ? "" : ": ", order.reason());
  if (!Apply(stored, JobEvent::kCancel, why) || IsFinal(stored.job().state())) return;
  if (!training) {
    // No step was made since the placement: there is nothing to save.
    KillAll(stored, why);
    FinishIfGone(stored);
    return;
  }
  // A stop without a save takes effect at the end of a step (P1); one with a save has P5.
  runtime_[stored.job().uid()].stop_deadline =
      parts_.clock->Now() + (order.with_save() ? rpc::kStopGrace : rpc::kStepLimit);
  SendStopWord(stored);
}

bool JobKeeper::CanCancel(const v1::StoredJob& stored) const {
  return stored.job().state() == v1::QUEUED || IsActive(stored.job().state());
}

base::MonotonicTime JobKeeper::RetryAt(const std::string& uid) const {
  const auto it = runtime_.find(uid);
  return it == runtime_.end() ? base::MonotonicTime{} : it->second.retry_at;
}

void JobKeeper::Finished(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  job->set_finished_us(parts_.ledger->NowMicros());
  ClearCondition(job, "Waiting");
  ClearCondition(job, "NodeUnreachable");
  if (job->state() != v1::FAILED) {
    job->set_failed_rank(-1);
    job->set_cause(v1::CAUSE_UNSPECIFIED);
  }
  for (v1::Operation* operation : parts_.ledger->Operations()) {
    if (operation->done() || operation->target() != job->uid()) continue;
    operation->set_done(true);
    operation->set_finished_us(job->finished_us());
    operation->clear_progress();
    operation->set_result(
        fmt::format("{} after step {}", v1::JobState_Name(job->state()), job->last_step().step()));
    parts_.ledger->MarkOperation(*operation);
  }
  for (const auto& [space, key] : parts_.rendezvous->Erase(job->uid())) {
    parts_.ledger->EraseRendezvous(space, key);
  }
  runtime_.erase(job->uid());
}

}  // namespace mt::daemon
