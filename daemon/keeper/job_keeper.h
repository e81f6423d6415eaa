// The only one that moves jobs through their states. JobTransitions applies the row of an event;
// JobVerbs (what users ask), JobPlacement (the way into an epoch), JobTeardown (the way out),
// JobVerdicts (why a job fails), JobBases (what a start must find), JobNodes (silence) and
// CommandAnswers (what ranks answer) raise events and carry out the actions of the rows. JobKeeper
// wires them and keeps time. Everyone else reports facts to them. Not thread-safe (the core's
// thread).
#pragma once

#include <chrono>
#include <cstdint>

#include "common/control/numbers.h"
#include "daemon/keeper/command_answers.h"
#include "daemon/keeper/job_adoption.h"
#include "daemon/keeper/job_bases.h"
#include "daemon/keeper/job_nodes.h"
#include "daemon/keeper/job_phases.h"
#include "daemon/keeper/job_placement.h"
#include "daemon/keeper/job_runtimes.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/job_transitions.h"
#include "daemon/keeper/job_verbs.h"
#include "daemon/keeper/job_verdicts.h"
#include "daemon/keeper/keeper_tools.h"
#include "daemon/keeper/operations.h"
#include "daemon/keeper/pending_commands.h"
#include "daemon/keeper/reader_pins.h"

namespace mt::daemon {

class WorkerHub;

class JobKeeper final : public JobRaiser {
 public:
  // All outlive it.
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    KeyValues* rendezvous;
    const base::Clock* clock;
    std::chrono::milliseconds phantom_after = control::kPhantomAfter;  // P7
  };
  explicit JobKeeper(const Parts& parts);
  JobKeeper(const JobKeeper&) = delete;
  JobKeeper& operator=(const JobKeeper&) = delete;

  JobBases& bases() { return bases_; }
  JobVerbs& verbs() { return verbs_; }
  JobPlacement& placement() { return placement_; }
  JobTeardown& teardown() { return teardown_; }
  JobVerdicts& verdicts() { return verdicts_; }
  JobNodes& nodes() { return nodes_; }
  CommandAnswers& answers() { return answers_; }
  JobAdoption& adoption() { return adoption_; }
  PendingCommands& commands() { return commands_; }
  const JobRuntimes& runtimes() const { return runtimes_; }
  int64_t num_refused() const { return transitions_.num_refused(); }

  void Raise(v1::StoredJob& job, JobEvent event, const Why& why) override;
  void Fail(v1::StoredJob& job, const Verdict& verdict) override { verdicts_.Fail(job, verdict); }

  // After a restart: deadlines of stops start anew, those of jobs go on.
  void Recover();
  // Deadlines: jobs, placement answers (P6), starts, stop grace (P5), ranks that should be gone
  // (P3), phantoms (P7); and what jobs that read have named. `placements` false: an agent that does
  // not answer a placement is waited for.
  void Tick(bool placements = true);

 private:
  void CarryOut(JobAction action, v1::StoredJob& job, const Why& why);

  Ledger* ledger_;
  OperationBook operations_;
  PendingCommands commands_;
  JobRuntimes runtimes_;
  JobTransitions transitions_;
  KeeperTools tools_;  // of the ones above; those below hold copies
  JobBases bases_;
  JobTeardown teardown_;
  JobPlacement placement_;
  JobVerdicts verdicts_;
  JobVerbs verbs_;
  JobNodes nodes_;
  ReaderPins pins_;
  CommandAnswers answers_;
  JobAdoption adoption_;
  JobPhases phases_;
};

}  // namespace mt::daemon
