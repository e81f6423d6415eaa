// From slots to ranks that train or hold.
#include "daemon/keeper/job_placement.h"

#include <algorithm>

#include "common/control/numbers.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/jobs/restarts.h"
#include "daemon/keeper/allocations.h"
#include "daemon/keeper/job_runtimes.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/pending_commands.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

bool HoldsRanks(v1::AllocationState state) {
  return state == v1::RESERVED || state == v1::ACCEPTED || state == v1::ACTIVE;
}

bool AllRanks(const v1::Job& job, bool (*is)(v1::RankState)) {
  return std::ranges::all_of(job.ranks(),
                             [is](const v1::RankStatus& rank) { return is(rank.state()); });
}

}  // namespace

void JobPlacement::Placed(v1::StoredJob& stored) {
  if (stored.job().state() == v1::RECOVERING) {
    tools_.raiser->Raise(stored, JobEvent::kFenced, {.text = "slots are reserved again"});
    return;
  }
  tools_.raiser->Raise(stored, JobEvent::kPlaced, {.text = "slots are reserved"});
}

void JobPlacement::AwaitAcceptance(v1::StoredJob& stored) {
  stored.set_assigned_hold(stored.job().goal() == v1::GOAL_HOLD);
  tools_.runtimes->Of(stored.job()).placement_deadline =
      tools_.clock->Now() + control::kPlacementAnswer;
}

void JobPlacement::AllocationAccepted(v1::StoredJob& stored, v1::StoredAllocation& allocation) {
  if (allocation.state() != v1::RESERVED) return;
  MoveAllocation(tools_.ledger, allocation, v1::ACCEPTED);
  if (stored.job().state() != v1::ADMITTED) return;
  const auto allocations = tools_.ledger->AllocationsOfJob(stored.job().uid());
  const bool all = std::ranges::none_of(allocations, [&](const v1::StoredAllocation* a) {
    return a->epoch() == stored.job().epoch() && a->state() == v1::RESERVED;
  });
  if (all) tools_.raiser->Raise(stored, JobEvent::kAllAccepted, {.text = "all agents accepted"});
}

void JobPlacement::AllocationRefused(v1::StoredJob& stored, const AllocationKey& key,
                                     std::string_view why) {
  tools_.ledger->EraseAllocation(key);
  if (stored.job().state() == v1::ADMITTED && stored.job().epoch() == key.epoch) {
    Failed(stored, fmt::format("node {} refused: {}", key.node, why));
    return;
  }
  teardown_->FinishIfGone(stored);
}

void JobPlacement::Failed(v1::StoredJob& stored, std::string_view why) {
  tools_.raiser->Raise(stored, JobEvent::kPlacementFailed, {.text = std::string(why)});
}

void JobPlacement::FreeSlots(v1::StoredJob& stored) {
  const JobEpoch closed{stored.job().uid(), stored.job().epoch()};
  stored.set_closed_epoch(closed.epoch);
  for (v1::StoredAllocation* allocation : tools_.ledger->AllocationsOfJob(closed.job_uid)) {
    if (!HoldsRanks(allocation->state())) continue;
    MoveAllocation(tools_.ledger, *allocation, v1::FREEING);
    tools_.commands->SendKill(closed, allocation->node(), "placed again");
  }
}

void JobPlacement::RetryLater(v1::StoredJob& stored) {
  stored.set_placement_failures(stored.placement_failures() + 1);
  tools_.runtimes->Of(stored.job()).retry_at =
      tools_.clock->Now() + RetryDelay(stored.placement_failures());
}

void JobPlacement::ForgetFailures(v1::StoredJob& stored) {
  stored.set_placement_failures(0);
  stored.clear_goes_first();
  stored.clear_left_out_nodes();
}

void JobPlacement::Recover(v1::StoredJob& stored) {
  const int64_t not_before_us = stored.job().restarts().not_before_us();
  if (not_before_us == 0) return;
  // A wall clock that went wrong meanwhile lengthens it by nothing.
  constexpr int64_t kMostUs =
      std::chrono::duration_cast<std::chrono::microseconds>(2 * control::kRetryCap).count();
  const int64_t left_us =
      std::clamp<int64_t>(not_before_us - tools_.ledger->NowMicros(), 0, kMostUs);
  tools_.runtimes->Of(stored.job()).retry_at =
      tools_.clock->Now() + std::chrono::microseconds(left_us);
}

bool JobPlacement::IsOverdue(const v1::Job& job) const {
  return job.state() == v1::ADMITTED &&
         tools_.clock->Now() >= tools_.runtimes->Of(job).placement_deadline;
}

void JobPlacement::Overdue(v1::StoredJob& stored) {
  Failed(stored,
         fmt::format("an agent did not answer within {} s", control::kPlacementAnswer.count()));
}

void JobPlacement::StartedTraining(v1::StoredJob& stored) {
  tools_.raiser->Raise(stored, JobEvent::kAllReady, {.text = "all ranks are ready"});
  if (stored.job().goal() != v1::GOAL_HOLD) return;
  // A pause came while they started. The command to hold was given then and finds them training,
  // so that the row's action is not carried out.
  const v1::Operation* pause = tools_.operations->FindOpen(stored.job(), "pause", "hold");
  tools_.transitions->Apply(
      stored, JobEvent::kHold,
      {.text = "holding: the pause came while the job started",
       .order = {.actor = pause == nullptr ? "" : pause->actor(), .reason = {}, .request_id = {}},
       .operation = pause == nullptr ? "" : pause->name()});
}

void JobPlacement::MoveToHeld(v1::StoredJob& stored) {
  const v1::Operation* pause = tools_.operations->FindOpen(stored.job(), "pause", "hold");
  const int64_t word_step = pause == nullptr ? 0 : pause->word_step();
  const int64_t step = word_step > 0 ? pause->step() : stored.job().ranks(0).step();
  Why why{.text = fmt::format("every rank is held after step {}", step),
          .operation = pause == nullptr ? "" : pause->name(),
          .step = step,
          .word_step = word_step};
  if (word_step > 0) why.text += fmt::format(" (step {} carried the word)", word_step);
  if (pause != nullptr) why.order = {pause->actor(), pause->reason(), pause->request_id()};
  tools_.raiser->Raise(stored, JobEvent::kAllHeld, why);
}

void JobPlacement::RanksMoved(v1::StoredJob& stored, bool training) {
  const v1::Job& job = stored.job();
  const auto is_held = [](v1::RankState state) { return state == v1::HELD; };
  // The command must have acted everywhere: a rank's HELD may be left over from the pause before.
  const bool held = AllRanks(job, is_held) && !PendingCommands::Has(stored, v1::Command::HOLD);
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
  const bool wait_at_ready =
      stored.assigned_hold() && !PendingCommands::Has(stored, v1::Command::HOLD);
  const auto has_trained = [](const v1::RankStatus& rank) { return rank.state() == v1::TRAINING; };
  if (held || (wait_at_ready && all_ready)) {
    MoveToHeld(stored);
  } else if (!wait_at_ready && (training || std::ranges::any_of(job.ranks(), has_trained))) {
    StartedTraining(stored);
  }
}

}  // namespace mt::daemon
