// Reports of saves, taken over into the job.
#include "daemon/keeper/checkpoints.h"

#include <algorithm>

#include "daemon/keeper/conditions.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

bool IsSameCheckpoint(const v1::CheckpointInfo& a, const v1::CheckpointInfo& b) {
  return a.path() == b.path() && a.step() == b.step() && a.epoch() == b.epoch();
}

// "step 120 has the tag best, which step 80 had before".
std::string TaggedText(const v1::CheckpointInfo& saved, const std::string& before) {
  std::string text = fmt::format("step {} has ", saved.step());
  if (saved.label().tag().empty()) return text + "meta and no tag";
  text += "the tag " + saved.label().tag();
  return before.empty() ? text : fmt::format("{}, which step {} had before", text, before);
}

// The label of `saved` goes to the checkpoint, and its tag from any other one.
void TakeLabel(Ledger* ledger, v1::StoredJob& stored, const v1::CheckpointInfo& saved) {
  v1::Job* job = stored.mutable_job();
  const std::string& tag = saved.label().tag();
  std::string before;
  const auto relabel = [&](v1::CheckpointInfo* one) {
    if (IsSameCheckpoint(*one, saved)) {
      *one->mutable_label() = saved.label();
    } else if (!tag.empty() && one->label().tag() == tag) {
      before = std::to_string(one->step());
      one->clear_label();
    }
  };
  for (v1::CheckpointInfo& one : *job->mutable_checkpoints()) relabel(&one);
  if (job->has_last_checkpoint()) relabel(job->mutable_last_checkpoint());
  ledger->AddEvent({.type = "CheckpointTagged",
                    .message = TaggedText(saved, before),
                    .job_uid = job->uid(),
                    .step = saved.step()});
  ledger->MarkJob(stored, Change::kState);
}

bool IsSameLabel(const v1::CheckpointLabel& a, const v1::CheckpointLabel& b) {
  return a.tag() == b.tag() && a.meta_size() == b.meta_size() &&
         std::all_of(a.meta().begin(), a.meta().end(), [&b](const auto& entry) {
           const auto found = b.meta().find(entry.first);
           return found != b.meta().end() && found->second == entry.second;
         });
}

}  // namespace

bool IsEmpty(const v1::CheckpointLabel& label) {
  return label.tag().empty() && label.meta().empty();
}

bool HasCheckpoints(const v1::Job& job) { return job.spec().checkpoint().directory() != "none"; }

int64_t SavedStep(const v1::StoredJob& stored) {
  return stored.fresh() && stored.restart_begun() ? 0 : stored.job().last_checkpoint().step();
}

bool HasUnsavedSteps(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  return stored.stop().with_save() && !stored.stop().discard() &&
         job.last_step().step() > SavedStep(stored);
}

void RecordCheckpoint(Ledger* ledger, v1::StoredJob& stored, const v1::CheckpointInfo& saved) {
  v1::Job* job = stored.mutable_job();
  const auto known = std::ranges::find_if(
      job->checkpoints(), [&](const auto& one) { return IsSameCheckpoint(one, saved); });
  if (known != job->checkpoints().end()) {
    if (!IsEmpty(saved.label()) && !IsSameLabel(known->label(), saved.label()))
      TakeLabel(ledger, stored, saved);
    return;
  }
  *job->add_checkpoints() = saved;
  *job->mutable_last_checkpoint() = saved;
  job->clear_last_checkpoint_error();
  stored.clear_base_step();
  stored.clear_fresh();
  job->clear_resumed_checkpoint();
  ClearCondition(job, "CheckpointStale");
  ledger->AddEvent({.type = "CheckpointSaved",
                    .message = fmt::format("step {} to {}", saved.step(), saved.path()),
                    .job_uid = job->uid(),
                    .step = saved.step()});
  if (!IsEmpty(saved.label())) TakeLabel(ledger, stored, saved);
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

void RecordSecondCopy(Ledger* ledger, v1::StoredJob& stored, const v1::SecondCopy& copy) {
  v1::Job* job = stored.mutable_job();
  const std::string error_before = job->second_copy().error();
  if (copy.error().empty()) {
    *job->mutable_second_copy() = copy;
    ClearCondition(job, "SecondCopyStale");
  } else {
    // The newest copy that succeeded stays.
    job->mutable_second_copy()->set_error(copy.error());
    SetCondition(job, "SecondCopyStale",
                 fmt::format("step {} was not copied to the second directory: {}", copy.step(),
                             copy.error()),
                 ledger->NowMicros());
    if (error_before != copy.error()) {
      ledger->AddEvent({.type = "SecondCopyFailed",
                        .message = copy.error(),
                        .job_uid = job->uid(),
                        .cause = v1::STORAGE,
                        .step = copy.step()});
    }
  }
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
