// The base as the ledger has it, and the way of a job that waits for it: STARTING, STOPPING(QUEUED)
// until its ranks are gone, QUEUED.
#include "daemon/keeper/job_bases.h"

#include "common/base/ids.h"
#include "common/rpc/reason.h"
#include "daemon/jobs/restarts.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_placement.h"
#include "daemon/keeper/job_runtimes.h"
#include "daemon/keeper/operations.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

constexpr char kBaseMissing[] = "ExpectedCheckpointMissing";
constexpr char kDataMissing[] = "DataMissing";

// What a failed rank says is not there, as the type of an event; nullptr: nothing that this job
// waits for. Data that a job has never read are for its user to put right.
const char* MissingPart(const v1::StoredJob& stored, const v1::RankReport& report) {
  const v1::Job& job = stored.job();
  if (report.reason() == reason::kExpectedCheckpointMissing)
    return job.state() == v1::RUNNING ? nullptr : kBaseMissing;
  if (report.reason() != reason::kDataMissing) return nullptr;
  const bool has_trained = job.last_step().step() > 0 || job.last_checkpoint().step() > 0;
  return has_trained ? kDataMissing : nullptr;
}

// Whether the next start of the job is a placement.
bool IsPlacedNext(const v1::Job& job) {
  return job.state() == v1::QUEUED || job.state() == v1::PAUSED_RELEASED ||
         (job.state() == v1::STOPPING && job.stopping_to() == v1::QUEUED);
}

// The newest known checkpoint of this step; nullptr: none.
const v1::CheckpointInfo* FindStep(const v1::Job& job, int64_t step) {
  if (job.last_checkpoint().step() == step) return &job.last_checkpoint();
  for (int i = job.checkpoints_size() - 1; i >= 0; --i) {
    if (job.checkpoints(i).step() == step) return &job.checkpoints(i);
  }
  return nullptr;
}

void ForgetRestart(v1::StoredJob* stored) {
  stored->clear_restart();
  stored->clear_restart_after_epoch();
  stored->clear_restart_begun();
  stored->clear_fresh();
}

}  // namespace

bool AwaitsBase(const v1::StoredJob& stored) {
  return stored.base_tries() > 0 && stored.job().state() == v1::QUEUED;
}

void FillBase(const v1::StoredJob& stored, v1::Assign* assign) {
  const v1::Job& job = stored.job();
  if (!HasCheckpoints(job)) return;
  assign->set_restart(stored.restart());
  if (stored.fresh()) {
    v1::Checkpoint* checkpoint = assign->mutable_spec()->mutable_checkpoint();
    checkpoint->clear_load();
    checkpoint->clear_load_tag();
    checkpoint->set_load_kind(v1::Checkpoint::LOAD_KIND_RESUME);
    checkpoint->set_fresh(true);
    return;
  }
  const int64_t step = stored.has_base_step() ? stored.base_step() : job.last_checkpoint().step();
  if (step == 0) return;
  v1::CheckpointBase* base = assign->mutable_base();
  base->set_job_uid(job.uid());
  base->set_step(step);
  base->set_allow_older(stored.allow_older());
  base->set_run(job.run().id());
  const v1::CheckpointInfo* known = FindStep(job, step);
  if (known == nullptr) return;
  base->set_digest(known->digest());
  base->set_epoch(known->epoch());
  base->set_root_id(known->root_id());
}

void MakeRestart(v1::StoredJob* stored) {
  stored->set_restart(base::NewUid());
  stored->set_restart_after_epoch(stored->job().epoch());
  stored->clear_restart_begun();
}

void CompleteRestart(v1::StoredJob* stored) {
  if (stored->fresh() && stored->restart().empty()) MakeRestart(stored);
}

void DropRestartOf(int64_t epoch, v1::StoredJob* stored) {
  if (epoch <= stored->restart_after_epoch()) ForgetRestart(stored);
}

Status JobBases::Check(const v1::StoredJob& stored, const ResumeFrom& from) const {
  if (!from.any()) return OkStatus();
  const v1::Job& job = stored.job();
  if (from.allow_older && from.fresh) {
    return rpc::WithReason(
        base::InvalidArgument("--allow-older and --fresh: one of them, or neither"),
        reason::kInvalidRequest);
  }
  if (!IsPlacedNext(job)) {
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' is {} and keeps what it has trained: --allow-older and "
                                 "--fresh are for a job that holds no ranks (possible: {})",
                                 job.name(), PositionName(PositionOf(job)),
                                 AllowedVerbs(PositionOf(job), job.goal())),
        reason::kWrongState);
  }
  if (HasCheckpoints(job)) return OkStatus();
  return rpc::WithReason(
      base::FailedPrecondition("job '{}' saves no checkpoints: it starts at step 0 anyhow",
                               job.name()),
      reason::kNoCheckpoints);
}

void JobBases::Accept(v1::StoredJob& stored, const ResumeFrom& from) {
  if (!IsPlacedNext(stored.job())) return;
  stored.set_allow_older(from.allow_older);
  if (from.fresh) {
    MakeRestart(&stored);
    stored.set_fresh(true);
  } else if (from.allow_older && stored.fresh() && !stored.restart_begun()) {
    ForgetRestart(&stored);  // the user thought better of it
  }
  if (stored.base_tries() > 0) ClearCondition(stored.mutable_job(), "Waiting");
  stored.set_base_tries(0);
  tools_.runtimes->Of(stored.job()).retry_at = {};
  tools_.ledger->MarkJob(stored, Change::kState);
}

bool JobBases::Missing(v1::StoredJob& stored, const v1::RankReport& report) {
  const v1::Job& job = stored.job();
  const JobPosition at = PositionOf(job);
  const char* const part = MissingPart(stored, report);
  if (part == nullptr || !JobStateMachine::Allows(at, JobEvent::kBaseMissing)) return false;
  // What the ranks of another node made of rank 0's leaving may have come first.
  const bool follows = at.state == v1::STOPPING || at.state == v1::RECOVERING;
  if (follows && !stored.secondary_verdict()) return false;
  if (at.state == v1::RECOVERING) {
    RefundRestart(static_cast<control::RestartBudget>(stored.restart_budget()),
                  stored.mutable_job()->mutable_restarts());
    stored.clear_restart_budget();
  }
  const std::string why = fmt::format("{}: {} (node {})", part, report.status().message(),
                                      job.ranks(report.status().rank()).node());
  // Each placement that fails so is told as a change of state; that the waiting begins, by this.
  if (stored.base_tries() == 0) {
    tools_.ledger->AddEvent({.type = part,
                             .message = why,
                             .job_uid = job.uid(),
                             .node = job.ranks(report.status().rank()).node(),
                             .cause = v1::STORAGE,
                             .step = job.last_checkpoint().step()});
  }
  stored.set_base_tries(stored.base_tries() + 1);
  // What was accepted was accepted for this placement.
  stored.clear_allow_older();
  if (v1::Operation* resume = tools_.operations->FindOpen(job, "resume"); resume != nullptr) {
    tools_.operations->Fail(*resume,
                            rpc::WithReason(base::FailedPrecondition("{}", why), report.reason()));
  }
  tools_.raiser->Raise(stored, JobEvent::kBaseMissing, {.text = why, .cause = v1::STORAGE});
  return true;
}

void JobBases::Started(v1::StoredJob& stored, const v1::RunInfo& info) {
  const v1::Job& job = stored.job();
  for (const std::string& damaged : info.damaged_checkpoints()) {
    tools_.ledger->AddEvent({.type = "CheckpointDamaged",
                             .message = fmt::format("passed over: {}", damaged),
                             .job_uid = job.uid(),
                             .cause = v1::STORAGE,
                             .step = info.resumed_from_step()});
  }
  stored.set_restart_begun(!stored.restart().empty());
  if (stored.fresh()) {  // they are another run's
    stored.mutable_job()->clear_last_step();
    if (job.has_restarts()) stored.mutable_job()->mutable_restarts()->clear_best_step();
  }
  stored.clear_base_step();
  if (info.resumed_from_step() < job.last_checkpoint().step())
    stored.set_base_step(info.resumed_from_step());
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobBases::Await(v1::StoredJob& stored) {
  // A resume that came while the ranks ended says what is accepted: nothing is waited for.
  if (stored.base_tries() == 0) return;
  v1::Job* job = stored.mutable_job();
  SetCondition(job, "Waiting", job->message(), tools_.ledger->NowMicros());
  // A storage that is missing is seldom back at once: the first retry waits, too.
  tools_.runtimes->Of(*job).retry_at = tools_.clock->Now() + RetryDelay(stored.base_tries() + 1);
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobBases::Settle(v1::StoredJob& stored) {
  stored.clear_allow_older();
  stored.clear_base_tries();
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobBases::ForgetVerdict(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  job->clear_cause();
  job->set_failed_rank(-1);
  job->clear_last_log_lines();
  stored.clear_secondary_verdict();
  tools_.ledger->MarkJob(stored, Change::kState);
}

}  // namespace mt::daemon
