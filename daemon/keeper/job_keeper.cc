// Who carries out which action of a row, and the order in which a job's deadlines count.
#include "daemon/keeper/job_keeper.h"

#include "common/base/check.h"
#include "daemon/keeper/conditions.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {

JobKeeper::JobKeeper(const Parts& parts)
    : ledger_(parts.ledger),
      operations_(parts.ledger),
      commands_(parts.ledger, parts.hub),
      runtimes_(parts.ledger, parts.clock),
      transitions_(parts.ledger),
      tools_{.ledger = parts.ledger,
             .rendezvous = parts.rendezvous,
             .clock = parts.clock,
             .operations = &operations_,
             .commands = &commands_,
             .runtimes = &runtimes_,
             .transitions = &transitions_,
             .raiser = this},
      bases_(tools_),
      teardown_(tools_),
      placement_(tools_, &teardown_),
      verdicts_(tools_, &placement_, &teardown_),
      verbs_(tools_, &bases_),
      nodes_(tools_, &placement_, &teardown_),
      pins_(tools_),
      answers_(
          tools_,
          {.placement = &placement_, .teardown = &teardown_, .verbs = &verbs_, .pins = &pins_}),
      adoption_(tools_, {.placement = &placement_, .teardown = &teardown_, .verbs = &verbs_}),
      phases_(tools_, &adoption_, parts.phantom_after) {}

void JobKeeper::Raise(v1::StoredJob& stored, JobEvent event, const Why& why) {
  const auto actions = transitions_.Apply(stored, event, why);
  if (!actions.has_value()) return;
  for (const JobAction action : *actions) CarryOut(action, stored, why);
}

// NOLINTNEXTLINE(readability-function-size): a case an action, and the compiler sees them all.
void JobKeeper::CarryOut(JobAction action, v1::StoredJob& stored, const Why& why) {
  const std::string& kill_reason = why.kill_reason.empty() ? why.text : why.kill_reason;
  switch (action) {
    case JobAction::kClearWaiting:
      ClearCondition(stored.mutable_job(), "Waiting");
      return;
    case JobAction::kForgetFailures:
      return placement_.ForgetFailures(stored);
    case JobAction::kForgetRanks:
      return stored.mutable_job()->clear_ranks();
    case JobAction::kAimAtStop:
      return stored.mutable_job()->set_goal(v1::GOAL_STOP);
    case JobAction::kAwaitAcceptance:
      return placement_.AwaitAcceptance(stored);
    case JobAction::kFreeSlots:
      return placement_.FreeSlots(stored);
    case JobAction::kRetryLater:
      return placement_.RetryLater(stored);
    case JobAction::kAwaitBase:
      return bases_.Await(stored);
    case JobAction::kSettleBase:
      verdicts_.Recovered(stored);
      return bases_.Settle(stored);
    case JobAction::kForgetVerdict:
      return bases_.ForgetVerdict(stored);
    case JobAction::kCheckRanks:
      return placement_.RanksMoved(stored, /*training=*/false);
    case JobAction::kAwaitSlots:
      return verbs_.Await(why, "waiting for slots");
    case JobAction::kAwaitEpoch:
      return verbs_.Await(why, "waiting for the ranks of the next epoch");
    case JobAction::kAwaitRelease:
      return verbs_.Await(why, "waiting for the release that is under way");
    case JobAction::kCommandHold:
      return verbs_.CommandHold(stored, why);
    case JobAction::kCommandResume:
      return verbs_.CommandResume(stored, why);
    case JobAction::kHoldAtStart:
      return verbs_.HoldAtStart(stored, why);
    case JobAction::kRunAtStart:
      return verbs_.RunAtStart(stored, why);
    case JobAction::kSettleOperations:
      return verbs_.SettleOperations(stored);
    case JobAction::kFollowResume:
      return verbs_.FollowResume(stored);
    case JobAction::kCommandStop:
      return teardown_.CommandStop(stored, why);
    case JobAction::kForgetStop:
      return teardown_.ForgetStop(stored);
    case JobAction::kAmendStop:
      return teardown_.AmendStop(stored, why);
    case JobAction::kKillUnlessStopping:
      return teardown_.KillUnlessStopping(stored, why, kill_reason);
    case JobAction::kKillRanks:
      return teardown_.KillRanks(stored, kill_reason);
    case JobAction::kAwaitExit:
      return teardown_.AwaitExit(stored);
    case JobAction::kCloseEpoch:
      return teardown_.CloseEpoch(stored);
    case JobAction::kFinish:
      return teardown_.Finish(stored);
    case JobAction::kFreeOlder:
      return adoption_.FreeOlder(stored);
    case JobAction::kFollowGoal:
      return adoption_.FollowGoal(stored, why);
    case JobAction::kStopAgain:
      return teardown_.StopAgain(stored);
    case JobAction::kFailOperations:
      return phases_.FailOperations(stored);
    case JobAction::kFailSaves:
      return teardown_.FailSaves(stored);
    case JobAction::kRecordVerdict:
      CHECK(why.verdict != nullptr) << "an event that fails a job comes with its verdict";
      return verdicts_.Record(stored, *why.verdict);
  }
}

void JobKeeper::Recover() {
  for (v1::StoredJob* stored : ledger_->LiveJobs()) {
    v1::Job* job = stored->mutable_job();
    if (job->goal() == v1::GOAL_UNSPECIFIED)
      job->set_goal(IsEnding(*job) ? v1::GOAL_STOP : v1::GOAL_RUN);
    teardown_.Recover(*stored);
    placement_.Recover(*stored);
    nodes_.ShowReachability(*stored);
    teardown_.FinishIfGone(*stored);
  }
}

void JobKeeper::Tick(bool placements) {
  pins_.Tick();
  for (v1::StoredJob* stored : ledger_->LiveJobs()) {
    const v1::Job& job = stored->job();
    if (verdicts_.IsOverdue(job)) {
      verdicts_.DeadlineOver(*stored);
    } else if (placements && placement_.IsOverdue(job)) {
      placement_.Overdue(*stored);
    } else if (!phases_.Tick(*stored)) {
      teardown_.Tick(*stored);
    }
  }
}

}  // namespace mt::daemon
