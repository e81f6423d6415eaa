// What the parts of JobKeeper share, and how they raise events of jobs. Not thread-safe (the core's
// thread).
#pragma once

#include "common/base/clock.h"
#include "daemon/jobs/job_states.h"
#include "daemon/jobs/verdict.h"
#include "daemon/keeper/job_transitions.h"

namespace mt::daemon {

class JobRuntimes;
class KeyValues;
class Ledger;
class OperationBook;
class PendingCommands;

// Implemented by JobKeeper.
class JobRaiser {
 public:
  virtual ~JobRaiser() = default;

  // Moves the job along its row for this event and carries out the row's actions, in order. Does
  // nothing but count and log where the table has no such row.
  virtual void Raise(v1::StoredJob& job, JobEvent event, const Why& why) = 0;
  // The job's epoch cannot go on: its ranks are killed, and another epoch follows where the verdict
  // and the job's budgets allow one (daemon/jobs/restarts.h); else the job fails with this verdict.
  virtual void Fail(v1::StoredJob& job, const Verdict& verdict) = 0;
};

// All outlive who holds them.
struct KeeperTools {
  Ledger* ledger;
  KeyValues* rendezvous;
  const base::Clock* clock;
  OperationBook* operations;
  PendingCommands* commands;
  JobRuntimes* runtimes;
  JobTransitions* transitions;
  JobRaiser* raiser;
};

}  // namespace mt::daemon
