// Applies rows of the table in daemon/jobs to jobs: state, message, event, log line. What follows
// from the change is handed back as the row's actions (JobKeeper::Raise has them carried out). Not
// thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/jobs/job_states.h"
#include "daemon/jobs/verdict.h"
#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

// Why a job moves: for its message and the event, and what the actions of the row need to know.
struct Why {
  std::string text;
  Order order = {};            // of the user who asked for it
  std::string operation = {};  // that waits for it
  v1::Cause cause = {};
  int64_t step = 0;
  int64_t word_step = 0;
  // --- For the actions.
  bool with_save = true;             // a stop is to save first, where the job saves at all
  bool keeps_ranks = false;          // with_save: where the save fails the ranks wait
  const Verdict* verdict = nullptr;  // of events that fail the job; outlives the call
  std::string kill_reason = {};      // that the agents are told; empty: `text`
};

class JobTransitions {
 public:
  explicit JobTransitions(Ledger* ledger) : ledger_(ledger) {}

  // Moves the job along the row of (its state, event), with an event StateChanged where the state
  // is another one then, and returns what is to be done. nullopt, counted and logged, where the
  // table has no such row: the job is as it was.
  std::optional<JobActions> Apply(v1::StoredJob& job, JobEvent event, const Why& why);
  // Sets what the job is to do, with an event GoalChanged where that is new.
  void SetGoal(v1::StoredJob& job, v1::Goal goal, const Why& why);
  // How many pairs the table did not list.
  int64_t num_refused() const { return machine_.num_refused(); }

 private:
  Ledger* ledger_;
  JobStateMachine machine_;
};

}  // namespace mt::daemon
