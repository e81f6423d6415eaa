// One change of state or goal, as the ledger and its readers see it.
#include "daemon/keeper/job_transitions.h"

#include "common/base/log.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

std::optional<JobActions> JobTransitions::Apply(v1::StoredJob& stored, JobEvent event,
                                                const Why& why) {
  v1::Job* job = stored.mutable_job();
  const JobPosition before = PositionOf(*job);
  const StatusOr<JobTransition> row = machine_.Next(before, event);
  if (!row.ok()) {
    log::Warn("transition refused", {{"job", job->name()}, {"error", base::Message(row.status())}});
    return std::nullopt;
  }
  job->set_state(row->to.state);
  job->set_stopping_to(row->to.stopping_to);
  job->set_message(why.text);
  if (before != row->to) {
    const std::string from = PositionName(before);
    const std::string to = PositionName(row->to);
    ledger_->AddEvent({.type = "StateChanged",
                       .message = fmt::format("{} -> {}: {}", from, to, why.text),
                       .job_uid = job->uid(),
                       .actor = why.order.actor,
                       .reason = why.order.reason,
                       .operation = why.operation,
                       .cause = why.cause,
                       .from = before.state,
                       .to = row->to.state,
                       .step = why.step,
                       .word_step = why.word_step});
    log::Info("job changed state",
              {{"job", job->name()}, {"from", from}, {"to", to}, {"why", why.text}});
  }
  ledger_->MarkJob(stored, Change::kState);
  return row->actions;
}

void JobTransitions::SetGoal(v1::StoredJob& stored, v1::Goal goal, const Why& why) {
  v1::Job* job = stored.mutable_job();
  if (job->goal() == goal) return;
  job->set_goal(goal);
  ledger_->AddEvent({.type = "GoalChanged",
                     .message = v1::Goal_Name(goal),
                     .job_uid = job->uid(),
                     .actor = why.order.actor,
                     .reason = why.order.reason,
                     .operation = why.operation});
  ledger_->MarkJob(stored, Change::kState);
}

}  // namespace mt::daemon
