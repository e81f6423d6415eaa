// Each time is counted from the first look that finds the job so, by the monotonic clock.
#include "daemon/keeper/job_phases.h"

#include <algorithm>

#include "common/control/epoch.h"
#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/keeper/allocations.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_adoption.h"
#include "daemon/keeper/job_runtimes.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/operations.h"
#include "daemon/keeper/pending_commands.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;

// The job's own time-outs, which its spec has with their defaults filled in, and P6.
milliseconds StartLimit(const v1::JobSpec& spec) {
  const auto& timeouts = spec.resilience().timeouts();
  return milliseconds(timeouts.comm_init()) + milliseconds(timeouts.load()) +
         control::kPlacementAnswer;
}

// What the slowest rank was at says what failed.
v1::Cause CauseOf(v1::RankState slowest) {
  if (slowest == v1::LOADING) return v1::STORAGE;
  return slowest == v1::COMM_INIT ? v1::NETWORK : v1::INTERNAL;
}

}  // namespace

bool JobPhases::Tick(v1::StoredJob& stored) {
  if (IsPhantom(stored)) {
    EndPhantom(stored);
    return true;
  }
  if (StartIsOver(stored)) {
    FailStart(stored);
    return true;
  }
  if (HoldIsOver(stored)) {
    WithdrawHold(stored);
    return true;
  }
  if (IsAgainstGoal(stored)) {
    // One that its ranks have followed before, as only a newer store knew, is not answered again.
    PendingCommands::Drop(stored, v1::Command::HOLD);
    PendingCommands::Drop(stored, v1::Command::RESUME);
    adoption_->FollowGoal(stored, {.text = std::string(stored.job().message())});
    return true;
  }
  return false;
}

bool JobPhases::IsPhantom(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  base::MonotonicTime& since = tools_.runtimes->Of(job).without_ranks_since;
  // One that recovers gives its ranks up.
  if ((!IsActive(job.state()) && !IsEnding(job)) || job.state() == v1::RECOVERING) {
    since = {};
    return false;
  }
  int held = 0;
  for (const v1::StoredAllocation* allocation : tools_.ledger->AllocationsOfJob(job.uid())) {
    if (allocation->epoch() == job.epoch() && allocation->state() != v1::ORPHANED)
      held += allocation->ranks_size();
  }
  // Ranks of a job that ends go one by one.
  const bool in_parts = IsActive(job.state()) && held < job.ranks_size();
  if (held > 0 && !in_parts) {
    since = {};
    return false;
  }
  const base::MonotonicTime now = tools_.clock->Now();
  if (since == base::MonotonicTime{}) since = now;
  return now - since >= phantom_after_;
}

void JobPhases::EndPhantom(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  tools_.runtimes->Of(*job).without_ranks_since = {};
  EndRest(stored);
  const Why why{
      .text = job->state() == v1::STOPPING
                  ? std::string(job->message())
                  : fmt::format("not all ranks of its epoch {} are on a node; resume it, and it "
                                "goes on from its last checkpoint",
                                control::EpochText(job->epoch()))};
  tools_.ledger->AddEvent(
      {.type = "PhantomFound",
       .message = fmt::format("{}: not all ranks of epoch {} are on a node",
                              PositionName(PositionOf(*job)), control::EpochText(job->epoch())),
       .job_uid = job->uid()});
  if (job->state() != v1::STOPPING) {
    tools_.transitions->SetGoal(stored, v1::GOAL_RELEASE, why);
    if (job->last_step().step() > SavedStep(stored)) {
      SetCondition(job, "CheckpointStale",
                   fmt::format("it had trained to step {}", job->last_step().step()),
                   tools_.ledger->NowMicros());
    }
  }
  tools_.raiser->Raise(stored, JobEvent::kPhantom, why);
}

void JobPhases::EndRest(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  for (v1::StoredAllocation* allocation : tools_.ledger->AllocationsOfJob(job.uid())) {
    if (allocation->epoch() != job.epoch() || allocation->state() == v1::ORPHANED) continue;
    stored.set_closed_epoch(job.epoch());
    // Those of an unreachable node are ended when it is back.
    if (allocation->state() == v1::UNREACHABLE) continue;
    MoveAllocation(tools_.ledger, *allocation, v1::FREEING);
    tools_.commands->SendKill({job.uid(), job.epoch()}, allocation->node(),
                              "other ranks of the job are on no node");
  }
}

// An older store may not know what its ranks were told last.
bool JobPhases::IsAgainstGoal(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  const auto held = std::ranges::count(job.ranks(), v1::HELD, &v1::RankStatus::state);
  const bool holds = job.state() == v1::RUNNING && job.goal() == v1::GOAL_RUN && held > 0;
  const bool trains =
      job.state() == v1::PAUSED_HELD && job.goal() == v1::GOAL_HOLD && held < job.ranks_size();
  base::MonotonicTime& since = tools_.runtimes->Of(job).against_goal_since;
  if ((!holds && !trains) || HasCondition(job, "NodeUnreachable")) {
    since = {};
    return false;
  }
  const base::MonotonicTime now = tools_.clock->Now();
  if (since == base::MonotonicTime{}) since = now;
  return now - since >= phantom_after_;
}

bool JobPhases::StartIsOver(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  base::MonotonicTime& since = tools_.runtimes->Of(job).starting_since;
  // Ranks wait for those of a node that is not heard, whose own start is not known.
  if (job.state() != v1::STARTING || HasCondition(job, "NodeUnreachable")) {
    since = {};
    return false;
  }
  const base::MonotonicTime now = tools_.clock->Now();
  if (since == base::MonotonicTime{}) since = now;
  return now - since >= StartLimit(job.spec());
}

void JobPhases::FailStart(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  const auto slowest = std::ranges::find_if(
      job.ranks(), [](const v1::RankStatus& rank) { return !RankIsReady(rank.state()); });
  Verdict verdict{
      .cause = v1::INTERNAL,
      .rank = -1,
      .message = fmt::format(
          "its start did not come to an end within {} s "
          "(resilience.timeouts.comm_init + load + P6)",
          std::chrono::duration_cast<std::chrono::seconds>(StartLimit(job.spec())).count())};
  if (slowest != job.ranks().end()) {
    verdict.cause = CauseOf(slowest->state());
    verdict.message += fmt::format(": rank {} on node {} is {}", slowest->rank(), slowest->node(),
                                   v1::RankState_Name(slowest->state()));
  }
  tools_.raiser->Fail(stored, verdict);
}

bool JobPhases::HoldIsOver(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  JobRuntime& runtime = tools_.runtimes->Of(job);
  if (job.state() != v1::PAUSING || HasCondition(job, "NodeUnreachable")) {
    runtime.pausing_since = {};
    return false;
  }
  const base::MonotonicTime now = tools_.clock->Now();
  // The word acts after the step, evaluation or save that is under way.
  if (runtime.pausing_since == base::MonotonicTime{} ||
      runtime.pausing_step != job.last_step().step()) {
    runtime.pausing_since = now;
    runtime.pausing_step = job.last_step().step();
  }
  return now - runtime.pausing_since >= control::kHoldLimit;
}

void JobPhases::WithdrawHold(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  const auto late = std::ranges::find_if(
      job.ranks(), [](const v1::RankStatus& rank) { return rank.state() != v1::HELD; });
  std::string text =
      fmt::format("its ranks do not hold, {} s after their last step", control::kHoldLimit.count());
  if (late != job.ranks().end()) {
    text += fmt::format(": rank {} on node {} is {}", late->rank(), late->node(),
                        v1::RankState_Name(late->state()));
  }
  v1::Operation* pause = tools_.operations->FindOpen(job, "pause", "hold");
  if (pause != nullptr) {
    tools_.operations->Fail(
        *pause, rpc::WithReason(base::Error(absl::StatusCode::kDeadlineExceeded, "{}", text),
                                rpc::reason::kHoldTimedOut));
  }
  const Why why{.text = fmt::format("the pause has failed: {}", text)};
  tools_.transitions->SetGoal(stored, v1::GOAL_RUN, why);
  tools_.raiser->Raise(stored, JobEvent::kResume, why);
}

void JobPhases::FailOperations(v1::StoredJob& stored) {
  for (v1::Operation* operation : tools_.ledger->OpenOperations(stored.job().uid())) {
    tools_.operations->Fail(*operation,
                            rpc::WithReason(base::FailedPrecondition("{}", stored.job().message()),
                                            rpc::reason::kRanksLost));
  }
}

}  // namespace mt::daemon
