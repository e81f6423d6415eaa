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
  // The event "fault": the job fails with this verdict, and its ranks are killed.
  void Fail(v1::StoredJob& job, const Verdict& verdict) {
    Raise(job, JobEvent::kFault,
          {.text = verdict.message, .cause = verdict.cause, .verdict = &verdict});
  }
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
