// What users ask of a job, each as an Operation. A verb that the job's state does not allow is
// FailedPrecondition (WRONG_STATE) and names the state and the verbs that it allows; one that its
// kind does not, (WRONG_KIND). Not thread-safe (the core's thread).
#pragma once

#include <string_view>

#include "daemon/keeper/job_bases.h"
#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class CheckpointLabel;
class Generate;
}  // namespace megatrain::v1

namespace mt::daemon {

class JobVerbs {
 public:
  // The bases outlive it.
  JobVerbs(const KeeperTools& tools, JobBases* bases) : tools_(tools), bases_(bases) {}

  // The operation, which the ledger owns; it may have ended already.
  using Operated = StatusOr<const v1::Operation*>;
  // Pauses: ranks keep their slots and wait.
  Operated Hold(v1::StoredJob& job, const Order& order);
  // Pauses: ranks save and free their slots. `discard`: they free them even if the save fails.
  Operated Release(v1::StoredJob& job, bool discard, const Order& order);
  Operated Resume(v1::StoredJob& job, const ResumeFrom& from, const Order& order);
  // `label` (may be empty) is given to the checkpoint.
  Operated Checkpoint(v1::StoredJob& job, const v1::CheckpointLabel& label, const Order& order);
  // Traces the next `steps` steps on every rank.
  Operated Profile(v1::StoredJob& job, int steps, const Order& order);
  // Has the ranks write what a completed `generate` asks for between two steps.
  Operated Decode(v1::StoredJob& job, const v1::Generate& generate, const Order& order);
  Operated Cancel(v1::StoredJob& job, bool with_save, const Order& order);
  Operated Kill(v1::StoredJob& job, const Order& order);
  // Forgets an ended job; the reference is invalid afterwards.
  Operated Delete(v1::StoredJob& job, const Order& order);
  // The job's spec was changed; the ranks are told where they run.
  void SpecChanged(v1::StoredJob& job, const Order& order);

  // --- Actions of rows (daemon/jobs/job_actions.h).
  void CommandHold(v1::StoredJob& job, const Why& why);
  void CommandResume(v1::StoredJob& job, const Why& why);
  void HoldAtStart(v1::StoredJob& job, const Why& why);
  void RunAtStart(v1::StoredJob& job, const Why& why);
  void Await(const Why& why, std::string_view what);
  void SettleOperations(v1::StoredJob& job);
  void FollowResume(v1::StoredJob& job);

 private:
  Status CheckVerb(const v1::StoredJob& job, JobEvent event, std::string_view verb) const;
  // WRONG_KIND where jobs of this kind make no steps (spec::JobKind).
  static Status CheckKind(const v1::Job& job, std::string_view verb);
  Status WrongState(const v1::StoredJob& job, std::string_view verb, std::string_view why) const;
  static Status NoCheckpoints(const v1::Job& job, std::string_view consequence);
  void DropUnheardPauses(v1::StoredJob& job);

  KeeperTools tools_;
  JobBases* bases_;
};

}  // namespace mt::daemon
