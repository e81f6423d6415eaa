// The epoch and its ranks become the job's before its row is applied, as with a placement.
#include "daemon/keeper/job_adoption.h"

#include <algorithm>

#include "common/control/epoch.h"
#include "common/rpc/reason.h"
#include "daemon/keeper/allocations.h"
#include "daemon/keeper/job_bases.h"
#include "daemon/keeper/job_placement.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/job_verbs.h"
#include "daemon/keeper/operations.h"
#include "daemon/keeper/pending_commands.h"
#include "daemon/keeper/reader_pins.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

bool IsHeld(const v1::RankStatus& rank) { return rank.state() == v1::HELD; }

}  // namespace

void JobAdoption::EndReleases(v1::StoredJob& stored) {
  for (v1::Operation* operation : tools_.ledger->OpenOperations(stored.job().uid())) {
    if (operation->verb() != "pause" || operation->mode() != "release") continue;
    tools_.operations->Fail(
        *operation,
        rpc::WithReason(base::Error(absl::StatusCode::kAborted,
                                    "the job's ranks were found at work in epoch {}; pause it "
                                    "again if it is to release them",
                                    control::EpochText(stored.job().epoch())),
                        rpc::reason::kSuperseded));
  }
}

void JobAdoption::TakeRanks(v1::StoredJob& stored, int64_t epoch,
                            const std::vector<v1::RankStatus>& ranks) {
  v1::Job* job = stored.mutable_job();
  DropRestartOf(epoch, &stored);
  job->set_epoch(epoch);
  job->clear_ranks();
  for (const v1::RankStatus& rank : ranks) *job->add_ranks() = rank;
  // What was said to, and heard from, the ranks of another epoch.
  stored.clear_words();
  stored.clear_rank_seq();
  stored.clear_assigned_hold();
  for (v1::StoredAllocation* allocation : tools_.ledger->AllocationsOfJob(job->uid())) {
    if (allocation->epoch() == epoch && allocation->state() == v1::ORPHANED)
      MoveAllocation(tools_.ledger, *allocation, v1::ACTIVE);
  }
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobAdoption::Adopt(v1::StoredJob& stored, int64_t epoch,
                        const std::vector<v1::RankStatus>& ranks, const Order& order) {
  v1::Job* job = stored.mutable_job();
  const bool stops = job->state() == v1::STOPPING && job->stopping_to() != v1::QUEUED;
  const bool holds = job->goal() == v1::GOAL_HOLD || std::ranges::all_of(ranks, IsHeld);
  TakeRanks(stored, epoch, ranks);
  EndReleases(stored);
  const Why why{.text = stops
                            ? std::string(job->message())
                            : fmt::format("{} ranks of epoch {} were found at work and taken over",
                                          ranks.size(), control::EpochText(epoch)),
                .order = order};
  tools_.ledger->AddEvent(
      {.type = "JobAdopted",
       .message = fmt::format("{} ranks of epoch {}", ranks.size(), control::EpochText(epoch)),
       .job_uid = job->uid(),
       .actor = order.actor,
       .reason = order.reason});
  if (!stops) tools_.transitions->SetGoal(stored, holds ? v1::GOAL_HOLD : v1::GOAL_RUN, why);
  tools_.raiser->Raise(stored, JobEvent::kAdopted, why);
  ReaderPins::ForgetTold(&stored);  // behind the row, which closes the epoch that was
}

void JobAdoption::FreeOlder(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  for (v1::StoredAllocation* allocation : tools_.ledger->AllocationsOfJob(job.uid())) {
    // Those of an unreachable node are ended when it is back.
    if (allocation->epoch() >= job.epoch() || allocation->state() == v1::UNREACHABLE) continue;
    MoveAllocation(tools_.ledger, *allocation, v1::FREEING);
    tools_.commands->SendKill({job.uid(), allocation->epoch()}, allocation->node(),
                              "a later epoch of the job runs");
  }
}

void JobAdoption::FollowGoal(v1::StoredJob& stored, const Why& why) {
  const v1::Job& job = stored.job();
  const bool all_held = std::ranges::all_of(job.ranks(), IsHeld);
  const bool any_held = std::ranges::any_of(job.ranks(), IsHeld);
  Why told = why;
  if (job.goal() == v1::GOAL_HOLD && !all_held) {
    const v1::Operation* pause = tools_.operations->FindOpen(job, "pause", "hold");
    told.operation = pause == nullptr ? "" : pause->name();
    parts_.verbs->CommandHold(stored, told);
  } else if (job.goal() == v1::GOAL_RUN && any_held) {
    const v1::Operation* resume = tools_.operations->FindOpen(job, "resume");
    told.operation = resume == nullptr ? "" : resume->name();
    parts_.verbs->CommandResume(stored, told);
  }
  parts_.placement->RanksMoved(stored, /*training=*/false);
}

}  // namespace mt::daemon
