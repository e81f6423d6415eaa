// JobKeeper's way to the end of an epoch: words to stop, kills, deadlines, and what is left when
// the ranks are gone.
#include <algorithm>
#include <utility>

#include "common/rpc/control_numbers.h"
#include "common/rpc/reason.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_keeper.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

bool IsEnding(const v1::Job& job) {
  return job.state() == v1::STOPPING || job.state() == v1::RELEASING;
}

}  // namespace

void JobKeeper::EndRanks(v1::StoredJob& stored, const Ending& ending) {
  v1::Job* job = stored.mutable_job();
  if (!IsEnding(*job)) return;
  // A word that is under way is followed; a kill that is under way, too.
  if (stored.has_stop() || stored.killing()) return;
  if (!ending.takes_words) {
    // No step was made since the placement: there is nothing to save.
    KillAll(stored, ending.why);
    FinishIfGone(stored);
    return;
  }
  v1::StopOrder* stop = stored.mutable_stop();
  stop->set_command_id(Words::StopId(*job));
  stop->set_with_save(ending.with_save && HasCheckpoints(*job));
  stop->set_reason(ending.order.reason);
  stop->set_actor(ending.order.actor);
  if (stop->with_save()) SetCondition(job, "Saving", ending.why, parts_.ledger->NowMicros());
  // A stop without a save takes effect at the end of a step (P1); one with a save has P5.
  RuntimeOf(*job).stop_deadline =
      parts_.clock->Now() + (stop->with_save() ? rpc::kStopGrace : rpc::kStepLimit);
  parts_.ledger->MarkJob(stored, Change::kState);
  words_.SendStop(stored);
}

void JobKeeper::KillAll(v1::StoredJob& stored, std::string_view reason) {
  const JobEpoch current{stored.job().uid(), stored.job().epoch()};
  if (!stored.killing()) {
    stored.set_killing(true);
    parts_.ledger->MarkJob(stored, Change::kState);
  }
  RuntimeOf(stored.job()).kill_again = parts_.clock->Now() + rpc::kAbortAllGone;
  for (v1::StoredAllocation* allocation : parts_.ledger->AllocationsOfJob(current.job_uid)) {
    if (allocation->epoch() != current.epoch) continue;
    if (allocation->state() == v1::UNREACHABLE) {
      EndRanksOf(stored, allocation->node(), v1::FENCED);
      continue;
    }
    MoveAllocation(*allocation, v1::FREEING);
    SendKill(current, allocation->node(), reason);
  }
}

void JobKeeper::RemindNode(v1::StoredJob& stored, v1::StoredAllocation& allocation) {
  const v1::Job& job = stored.job();
  if (allocation.state() == v1::FREEING) {
    SendKill({allocation.job_uid(), allocation.epoch()}, allocation.node(), "stopping");
    return;
  }
  if (!job.ranks().empty() && job.ranks(0).node() == allocation.node()) words_.Send(stored);
}

bool JobKeeper::CommandAnswered(const std::string& command_id, const std::string& node,
                                bool accepted, const std::string& message) {
  CommandId id;
  if (!Words::Parse(command_id, &id)) return false;
  v1::StoredJob* stored = parts_.ledger->FindJob(id.job.job_uid);
  const bool current = stored != nullptr && stored->job().epoch() == id.job.epoch;
  if (id.kind == CommandKind::kKill) {
    if (current && IsEnding(stored->job())) RuntimeOf(stored->job()).kill_acked.insert(node);
    // The agent knows no such ranks.
    if (!accepted) AllocationGone({id.job.job_uid, id.job.epoch, node}, message);
    return true;
  }
  if (accepted || !current) return true;
  if (id.kind == CommandKind::kWord) {
    v1::GivenWord word;
    if (words_.Take(*stored, command_id, &word))
      WordRefused(*stored, word, base::FailedPrecondition("node {}: {}", node, message));
    return true;
  }
  if (!IsEnding(stored->job()) || stored->killing()) return true;
  parts_.ledger->AddEvent(
      {.type = "StopRefused", .message = message, .job_uid = stored->job().uid(), .node = node});
  KillAll(*stored, "the word to stop could not be given");
  return true;
}

void JobKeeper::AllocationGone(const AllocationKey& key, std::string_view why) {
  const v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
  if (allocation == nullptr) return;
  const bool asked_for = allocation->state() == v1::FREEING || !IsOpen(*allocation);
  parts_.ledger->EraseAllocation(key);
  v1::StoredJob* stored = parts_.ledger->FindJob(key.job_uid);
  if (stored == nullptr || stored->job().epoch() != key.epoch) return;
  const v1::Job& job = stored->job();
  if (!asked_for && IsActive(job.state())) {
    const bool others = !parts_.ledger->AllocationsOfJob(key.job_uid).empty();
    const bool done = std::ranges::all_of(job.ranks(), [&](const v1::RankStatus& rank) {
      return rank.node() != key.node || rank.state() == v1::DONE;
    });
    // Ranks that are done may be heard of before rank 0's word that training ended; the last one
    // may not.
    if (!done || !others) {
      Fail(*stored, {.cause = v1::INTERNAL,
                     .rank = -1,
                     .message = fmt::format("ranks on node {} are gone: {}", key.node, why),
                     .last_log_lines = {}});
      return;
    }
  }
  for (v1::RankStatus& rank : *stored->mutable_job()->mutable_ranks()) {
    if (rank.node() == key.node && (rank.state() == v1::FENCED || rank.state() == v1::UNKNOWN)) {
      rank.set_state(v1::DONE);
      parts_.ledger->MarkJob(*stored, Change::kRanks);
    }
  }
  FinishIfGone(*stored);
}

void JobKeeper::FinishIfGone(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  if (!IsEnding(*job)) return;
  // One on an unreachable node counts: only its agent, or an operator, knows that it is gone.
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOfJob(job->uid())) {
    if (allocation->epoch() == job->epoch()) return;
  }
  if (job->state() == v1::STOPPING) {
    Apply(stored, JobEvent::kRanksGone, {.text = std::string(job->message())});
    return;
  }
  const int64_t saved = job->last_checkpoint().step();
  if (job->last_step().step() > saved && !HasCondition(*job, "CheckpointStale")) {
    SetCondition(job, "CheckpointStale",
                 fmt::format("it had trained to step {}", job->last_step().step()),
                 parts_.ledger->NowMicros());
  }
  CloseEpoch(stored);
  Apply(stored, JobEvent::kReleased,
        {.text = saved == 0 ? "released; nothing was saved, it starts over"
                            : fmt::format("released; it goes on from step {}", saved),
         .order = {},
         .operation = {},
         .cause = {},
         .step = saved});
}

void JobKeeper::CloseEpoch(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  for (v1::Operation* operation : parts_.ledger->OpenOperations(job->uid())) {
    if (operation->verb() != "checkpoint" || IsFinal(job->state())) continue;
    book_.Fail(*operation,
               rpc::WithReason(base::FailedPrecondition("its ranks ended before they had saved: {}",
                                                        job->message()),
                               rpc::reason::kJobEnded));
  }
  stored.clear_stop();
  stored.clear_words();
  stored.clear_rank_seq();
  stored.clear_killing();
  stored.clear_assigned_hold();
  ClearCondition(job, "Saving");
  ClearCondition(job, "NodeUnreachable");
  ClearCondition(job, "NoProgress");
  RuntimeOf(*job).kill_acked.clear();
  for (const auto& [space, key] : parts_.rendezvous->Erase(job->uid())) {
    parts_.ledger->EraseRendezvous(space, key);
  }
  parts_.ledger->MarkJob(stored, Change::kState);
}

void JobKeeper::Finished(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  job->set_finished_us(parts_.ledger->NowMicros());
  job->set_goal(v1::GOAL_STOP);
  ClearCondition(job, "Waiting");
  if (job->state() != v1::FAILED) {
    job->set_failed_rank(-1);
    job->set_cause(v1::CAUSE_UNSPECIFIED);
  }
  book_.EndAll(*job);
  CloseEpoch(stored);
  runtime_.erase(job->uid());
}

void JobKeeper::Recover() {
  const base::MonotonicTime now = parts_.clock->Now();
  for (v1::StoredJob* stored : parts_.ledger->LiveJobs()) {
    if (stored->job().goal() == v1::GOAL_UNSPECIFIED)
      stored->mutable_job()->set_goal(IsEnding(stored->job()) ? v1::GOAL_STOP : v1::GOAL_RUN);
    Runtime& runtime = RuntimeOf(stored->job());
    runtime.placement_deadline = now + rpc::kPlacementAnswer;
    runtime.stop_deadline = now + (stored->stop().with_save() ? rpc::kStopGrace : rpc::kStepLimit);
    runtime.kill_again = now + rpc::kAbortAllGone;
    ShowReachability(*stored);
    FinishIfGone(*stored);
  }
}

void JobKeeper::DeadlineOver(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  const bool takes_words = TakesWords(job->state());
  const std::string why = fmt::format("its deadline of {} s is over",
                                      (job->deadline_us() - job->created_us()) / 1'000'000);
  job->set_cause(v1::DEADLINE);
  if (!Apply(stored, JobEvent::kDeadline, {.text = why, .cause = v1::DEADLINE})) return;
  SetVerdict(stored, {.cause = v1::DEADLINE, .rank = -1, .message = why, .last_log_lines = {}});
  if (IsFinal(job->state())) return;
  job->set_goal(v1::GOAL_STOP);
  EndRanks(stored, {.with_save = true,
                    .takes_words = takes_words,
                    .order = {.actor = "coordinator", .reason = why, .request_id = {}},
                    .why = why});
}

void JobKeeper::Tick() {
  const base::MonotonicTime now = parts_.clock->Now();
  for (v1::StoredJob* stored : parts_.ledger->LiveJobs()) {
    const v1::Job& job = stored->job();
    const Runtime runtime = RuntimeOf(job);
    const auto allowed_us = std::chrono::microseconds(job.deadline_us() - job.created_us());
    const JobPosition position{job.state(), job.stopping_to()};
    if (job.deadline_us() != 0 && now >= runtime.born + allowed_us &&
        JobStateMachine::Allows(position, JobEvent::kDeadline)) {
      DeadlineOver(*stored);
    } else if (job.state() == v1::ADMITTED && now >= runtime.placement_deadline) {
      PlacementFailed(*stored, fmt::format("an agent did not answer within {} s",
                                           rpc::kPlacementAnswer.count()));
    } else if (IsEnding(job)) {
      const bool killing = stored->killing();
      if (now < (killing ? runtime.kill_again : runtime.stop_deadline)) continue;
      KillAll(*stored, killing ? "still there" : "the time to stop is over");
      FinishIfGone(*stored);
    }
  }
}

}  // namespace mt::daemon
