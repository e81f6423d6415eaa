// The way to the end of an epoch: the command to stop, kills, their deadlines, and what is left
// when the ranks are gone. Not thread-safe (the core's thread).
#pragma once

#include <string>
#include <string_view>

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

class JobTeardown {
 public:
  explicit JobTeardown(const KeeperTools& tools) : tools_(tools) {}

  // --- Actions of rows (daemon/jobs/job_actions.h).
  void CommandStop(v1::StoredJob& job, const Why& why);
  void ForgetStop(v1::StoredJob& job);
  void AmendStop(v1::StoredJob& job, const Why& why);
  void KillUnlessStopping(v1::StoredJob& job, const Why& why, std::string_view reason);
  void KillRanks(v1::StoredJob& job, std::string_view reason);
  void AwaitExit(v1::StoredJob& job);
  void StopAgain(v1::StoredJob& job);
  void CloseEpoch(v1::StoredJob& job);
  void Finish(v1::StoredJob& job);
  void FailSaves(v1::StoredJob& job);

  // The ranks do not know a stop that keeps them where the save fails: they get one that does not.
  void StopAnyway(v1::StoredJob& job);
  // Orders every agent of the epoch to kill its ranks, until all of them are gone.
  void KillAll(v1::StoredJob& job, std::string_view reason);
  // Ends STOPPING or RELEASING where no allocation of the epoch is left; in RECOVERING the epoch is
  // closed then, and the job can be placed (IsFenced).
  void FinishIfGone(v1::StoredJob& job);
  // Nothing of the allocation is left on its node. `why` says how that came where nobody had asked
  // for it.
  void AllocationGone(const AllocationKey& key, std::string_view why);
  // Nothing of the allocation is on its node, which says nothing of the job: the ledger is behind.
  void AllocationForgotten(const AllocationKey& key);
  // Kills where the time to stop is over (P1, P5), and again where ranks are still there (P3).
  void Tick(v1::StoredJob& job);
  // After a restart: deadlines start anew.
  void Recover(v1::StoredJob& job);

 private:
  bool IsGone(const v1::StoredJob& job);

  KeeperTools tools_;
};

// Whether the job's ranks are on their way out: STOPPING or RELEASING.
bool IsEnding(const v1::Job& job);

// Whether the job is RECOVERING and nothing of its epoch is left, or nothing that could do a step.
bool IsFenced(const v1::StoredJob& job);

// Whether a rank was heard to train or to hold: there may be steps to save, whatever the job's
// state (STARTING until the last rank is heard).
bool HasRanksAtWork(const v1::Job& job);

}  // namespace mt::daemon
