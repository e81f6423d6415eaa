// Reports of saves, taken over into the job.
#include "daemon/keeper/checkpoints.h"

#include <algorithm>

#include "daemon/keeper/conditions.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

bool HasCheckpoints(const v1::Job& job) { return job.spec().checkpoint().directory() != "none"; }

bool HasUnsavedSteps(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  return stored.stop().with_save() && !stored.stop().discard() &&
         job.last_step().step() > job.last_checkpoint().step();
}

void RecordCheckpoint(Ledger* ledger, v1::StoredJob& stored, const v1::CheckpointInfo& saved) {
  v1::Job* job = stored.mutable_job();
  const bool known =
      std::ranges::any_of(job->checkpoints(), [&saved](const v1::CheckpointInfo& checkpoint) {
        return checkpoint.path() == saved.path() && checkpoint.step() == saved.step() &&
               checkpoint.epoch() == saved.epoch();
      });
  if (known) return;
  *job->add_checkpoints() = saved;
  *job->mutable_last_checkpoint() = saved;
  job->clear_last_checkpoint_error();
  stored.clear_base_step();
  ClearCondition(job, "CheckpointStale");
  ledger->AddEvent({.type = "CheckpointSaved",
                    .message = fmt::format("step {} to {}", saved.step(), saved.path()),
                    .job_uid = job->uid(),
                    .step = saved.step()});
  ledger->MarkJob(stored, Change::kState);
}

void RecordFailedSave(Ledger* ledger, v1::StoredJob& stored, const std::string& why) {
  stored.mutable_job()->set_last_checkpoint_error(why);
  SetCondition(stored.mutable_job(), "CheckpointStale", fmt::format("a save failed: {}", why),
               ledger->NowMicros());
  ledger->AddEvent({.type = "CheckpointFailed",
                    .message = why,
                    .job_uid = stored.job().uid(),
                    .cause = v1::STORAGE,
                    .step = stored.job().last_step().step()});
  ledger->MarkJob(stored, Change::kState);
}

void ForgetCheckpoints(Ledger* ledger, v1::StoredJob& stored,
                       const v1::CheckpointsDeleted& deleted) {
  auto* checkpoints = stored.mutable_job()->mutable_checkpoints();
  for (int i = checkpoints->size() - 1; i >= 0; --i) {
    if (std::ranges::find(deleted.paths(), checkpoints->at(i).path()) != deleted.paths().end())
      checkpoints->DeleteSubrange(i, 1);
  }
  ledger->MarkJob(stored, Change::kState);
}

}  // namespace mt::daemon
