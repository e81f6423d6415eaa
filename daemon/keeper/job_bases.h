// What a job's next start must find: its base, the newest checkpoint that is known of it. The base
// goes to the ranks with their assignment; where they do not find it, the job waits in the queue
// until it is back, behind all others, or until a user says that it may go on from less
// (docs/design/control-plane.md#resume-base). A job that has trained waits for its data likewise.
// Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class Assign;
class RankReport;
class RunInfo;
}  // namespace megatrain::v1

namespace mt::daemon {

// What a resume accepts instead of the base: an older checkpoint for the next placement alone.
struct ResumeFrom {
  bool allow_older = false;  // an older checkpoint of the job
  bool fresh = false;        // another run, from step 0
  bool any() const { return allow_older || fresh; }
};

// Whether the job waits in the queue for its base or its data.
bool AwaitsBase(const v1::StoredJob& job);
// Fills in what the ranks must find, and the run that a user began on purpose.
void FillBase(const v1::StoredJob& job, v1::Assign* assign);

// Makes the token of another run (v1::Assign::restart). It goes with every placement from now on,
// until another one is made.
void MakeRestart(v1::StoredJob* job);
// Before a placement: the token of a `resume --fresh` that an earlier version has stored.
void CompleteRestart(v1::StoredJob* job);
// Ranks of this epoch are found at work: those from before the token know nothing of it, and what
// they train is the job's run.
void DropRestartOf(int64_t epoch, v1::StoredJob* job);

class JobBases {
 public:
  explicit JobBases(const KeeperTools& tools) : tools_(tools) {}

  // --- The resume that says what is accepted.
  // kInvalidArgument for both at once, kFailedPrecondition (WRONG_STATE) where the job keeps its
  // ranks or cannot save.
  Status Check(const v1::StoredJob& job, const ResumeFrom& from) const;
  // Takes it over; without effect where the job keeps its ranks.
  void Accept(v1::StoredJob& job, const ResumeFrom& from);

  // --- Facts.
  // A rank that fails may say that the base is not there, or the data of a job that has trained.
  // False: it says nothing of the kind, or that explains nothing in this state.
  bool Missing(v1::StoredJob& job, const v1::RankReport& report);
  // The ranks say where they start.
  void Started(v1::StoredJob& job, const v1::RunInfo& info);

  // --- Actions of rows (daemon/jobs/job_actions.h).
  void Await(v1::StoredJob& job);
  void Settle(v1::StoredJob& job);
  void ForgetVerdict(v1::StoredJob& job);

 private:
  KeeperTools tools_;
};

}  // namespace mt::daemon
