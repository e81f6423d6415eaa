#include "daemon/keeper/job_keeper.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/rpc/control_numbers.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/keeper/conditions.h"
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

bool HoldsRanks(v1::AllocationState state) {
  return state == v1::RESERVED || state == v1::ACCEPTED || state == v1::ACTIVE;
}

bool AllRanks(const v1::Job& job, bool (*is)(v1::RankState)) {
  return std::ranges::all_of(job.ranks(),
                             [is](const v1::RankStatus& rank) { return is(rank.state()); });
}

}  // namespace

JobKeeper::Runtime& JobKeeper::RuntimeOf(const v1::Job& job) {
  const auto [it, is_new] = runtime_.try_emplace(job.uid());
  if (is_new) {
    const int64_t age_us = parts_.ledger->NowMicros() - job.created_us();
    it->second.born = parts_.clock->Now() - std::chrono::microseconds(std::max<int64_t>(0, age_us));
  }
  return it->second;
}

bool JobKeeper::Apply(v1::StoredJob& stored, JobEvent event, const Why& why) {
  v1::Job* job = stored.mutable_job();
  const JobPosition before = PositionOf(*job);
  const StatusOr<JobPosition> next = machine_.Next(before, event);
  if (!next.ok()) {
    log::Warn("transition refused",
              {{"job", job->name()}, {"error", base::Message(next.status())}});
    return false;
  }
  job->set_state(next->state);
  job->set_stopping_to(next->stopping_to);
  job->set_message(why.text);
  if (before != *next) {
    const std::string from = PositionName(before);
    const std::string to = PositionName(*next);
    parts_.ledger->AddEvent({.type = "StateChanged",
                             .message = fmt::format("{} -> {}: {}", from, to, why.text),
                             .job_uid = job->uid(),
                             .actor = why.order.actor,
                             .reason = why.order.reason,
                             .operation = why.operation,
                             .cause = why.cause,
                             .from = before.state,
                             .to = next->state,
                             .step = why.step,
                             .word_step = why.word_step});
    log::Info("job changed state",
              {{"job", job->name()}, {"from", from}, {"to", to}, {"why", why.text}});
  }
  if (IsFinal(next->state)) Finished(stored);
  parts_.ledger->MarkJob(stored, Change::kState);
  SettleOperations(stored);
  return true;
}

void JobKeeper::SetGoal(v1::StoredJob& stored, int goal, const Why& why) {
  v1::Job* job = stored.mutable_job();
  const auto wanted = static_cast<v1::Goal>(goal);
  if (job->goal() == wanted) return;
  job->set_goal(wanted);
  parts_.ledger->AddEvent({.type = "GoalChanged",
                           .message = v1::Goal_Name(wanted),
                           .job_uid = job->uid(),
                           .actor = why.order.actor,
                           .reason = why.order.reason,
                           .operation = why.operation});
  parts_.ledger->MarkJob(stored, Change::kState);
}

void JobKeeper::Placed(v1::StoredJob& stored) {
  ClearCondition(stored.mutable_job(), "Waiting");
  CloseEpoch(stored);
  stored.set_assigned_hold(stored.job().goal() == v1::GOAL_HOLD);
  if (!Apply(stored, JobEvent::kPlaced, {.text = "slots are reserved"})) return;
  RuntimeOf(stored.job()).placement_deadline = parts_.clock->Now() + rpc::kPlacementAnswer;
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
  Apply(stored, JobEvent::kAllAccepted, {.text = "all agents accepted"});
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
  if (!Apply(stored, JobEvent::kPlacementFailed, {.text = std::string(why)})) return;
  CloseEpoch(stored);
  stored.mutable_job()->clear_ranks();
  RuntimeOf(stored.job()).retry_at = parts_.clock->Now() + delay;
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
       .job_uid = job->uid(),
       .cause = verdict.cause,
       .step = job->last_step().step()});
  parts_.ledger->MarkJob(stored, Change::kState);
}

void JobKeeper::Fail(v1::StoredJob& stored, const Verdict& verdict) {
  if (!Apply(stored, JobEvent::kFault, {.text = verdict.message, .cause = verdict.cause})) return;
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
  if (job.state() != v1::STOPPING && job.state() != v1::RELEASING) return;
  if (RuntimeOf(job).kill_acked.contains(node)) return;  // the kill's doing
  if (job.stopping_to() == v1::FAILED && stored.killing()) {
    if (stored.secondary_verdict() && !verdict.secondary) SetVerdict(stored, verdict);
    return;
  }
  // The others would wait for this one. What the job has reached (or the user's word) stands.
  parts_.ledger->AddEvent(
      {.type = "RankFailed",
       .message = fmt::format("while {}: {}", PositionName(PositionOf(job)), verdict.message),
       .job_uid = job.uid(),
       .node = node,
       .cause = verdict.cause});
  if (stored.has_stop() && stored.stop().with_save()) {
    SetCondition(stored.mutable_job(), "CheckpointStale",
                 fmt::format("a rank failed before the last save: {}", verdict.message),
                 parts_.ledger->NowMicros());
    parts_.ledger->MarkJob(stored, Change::kState);
  }
  KillAll(stored, verdict.message);
}

void JobKeeper::StartedTraining(v1::StoredJob& stored) {
  if (!Apply(stored, JobEvent::kAllReady, {.text = "all ranks are ready"})) return;
  if (stored.job().goal() != v1::GOAL_HOLD) return;
  // A pause came while they started, and the word to hold finds them training.
  const v1::Operation* pause = book_.FindOpen(stored.job(), "pause", "hold");
  Apply(stored, JobEvent::kHold,
        {.text = "holding: the pause came while the job started",
         .order = {.actor = pause == nullptr ? "" : pause->actor(), .reason = {}, .request_id = {}},
         .operation = pause == nullptr ? "" : pause->name()});
}

void JobKeeper::MoveToHeld(v1::StoredJob& stored) {
  const v1::Operation* pause = book_.FindOpen(stored.job(), "pause", "hold");
  const int64_t word_step = pause == nullptr ? 0 : pause->word_step();
  const int64_t step = word_step > 0 ? pause->step() : stored.job().ranks(0).step();
  Why why{.text = fmt::format("every rank is held after step {}", step),
          .order = {},
          .operation = pause == nullptr ? "" : pause->name(),
          .cause = {},
          .step = step,
          .word_step = word_step};
  if (word_step > 0) why.text += fmt::format(" (step {} carried the word)", word_step);
  if (pause != nullptr) why.order = {pause->actor(), pause->reason(), pause->request_id()};
  Apply(stored, JobEvent::kAllHeld, why);
}

void JobKeeper::RanksMoved(v1::StoredJob& stored, bool training) {
  const v1::Job& job = stored.job();
  const auto is_held = [](v1::RankState state) { return state == v1::HELD; };
  // The word must have acted everywhere: a rank's HELD may be left over from the pause before.
  const bool held = AllRanks(job, is_held) && !Words::Has(stored, v1::Command::HOLD);
  if (job.state() == v1::PAUSING) {
    if (held) MoveToHeld(stored);
    return;
  }
  if (job.state() != v1::STARTING) return;
  const bool all_ready = AllRanks(job, RankIsReady);
  if (job.goal() != v1::GOAL_HOLD) {
    if (all_ready || training) StartedTraining(stored);
    return;
  }
  const bool wait_at_ready = stored.assigned_hold() && !Words::Has(stored, v1::Command::HOLD);
  const auto has_trained = [](const v1::RankStatus& rank) { return rank.state() == v1::TRAINING; };
  if (held || (wait_at_ready && all_ready)) {
    MoveToHeld(stored);
  } else if (!wait_at_ready && (training || std::ranges::any_of(job.ranks(), has_trained))) {
    StartedTraining(stored);
  }
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
  if (!TakesWords(job->state())) return;  // it was told to stop
  if (ended.final_save_failed() && job->spec().checkpoint().strict()) {
    Fail(stored,
         {.cause = v1::STORAGE,
          .rank = 0,
          .message = fmt::format("the last save failed (checkpoint.strict): {}", ended.message())});
    return;
  }
  const bool reached = ended.completed() || !ended.exit_condition().empty();
  if (!reached || job->state() == v1::PAUSED_HELD) {
    Fail(stored, {.cause = v1::INTERNAL,
                  .rank = 0,
                  .message = fmt::format("training stopped at step {} without an order: {}",
                                         ended.last_step(), ended.message())});
    return;
  }
  Apply(stored, JobEvent::kTrainingEnded,
        {.text = ended.completed() ? fmt::format("trained to step {}", ended.last_step())
                                   : fmt::format("{} was reached at step {}",
                                                 ended.exit_condition(), ended.last_step()),
         .order = {},
         .operation = {},
         .cause = {},
         .step = ended.last_step()});
  RuntimeOf(*job).stop_deadline = parts_.clock->Now() + rpc::kStepLimit;
  FinishIfGone(stored);
}

base::MonotonicTime JobKeeper::RetryAt(const std::string& uid) const {
  const auto it = runtime_.find(uid);
  return it == runtime_.end() ? base::MonotonicTime{} : it->second.retry_at;
}

void JobKeeper::SettleOperations(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  if (IsFinal(job.state())) return;  // Finished has ended them
  for (v1::Operation* operation : parts_.ledger->OpenOperations(job.uid())) {
    const bool released = job.state() == v1::PAUSED_RELEASED;
    if (operation->verb() == "pause" && released) {
      if (job.has_last_checkpoint()) *operation->mutable_checkpoint() = job.last_checkpoint();
      book_.Succeed(*operation, job.message());
    } else if (operation->mode() == "hold" && job.state() == v1::PAUSED_HELD) {
      if (operation->word_step() == 0) operation->set_step(job.ranks(0).step());
      book_.Succeed(*operation, job.message());
    } else if (operation->verb() == "resume" && job.state() == v1::RUNNING &&
               !Words::WaitsFor(stored, operation->name())) {
      book_.Succeed(*operation, job.resumed_from_step() > 0 && operation->step() == 0
                                    ? fmt::format("RUNNING from step {}", job.resumed_from_step())
                                    : "RUNNING");
    }
  }
}

}  // namespace mt::daemon
