// Why a job ends that no user has ended: ranks that fail, training that is over, a deadline. Not
// thread-safe (the core's thread).
#pragma once

#include <string>

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class TrainingEnded;
}

namespace mt::daemon {

class JobPlacement;
class JobTeardown;

class JobVerdicts {
 public:
  // Both outlive it.
  JobVerdicts(const KeeperTools& tools, JobPlacement* placement, JobTeardown* teardown)
      : tools_(tools), placement_(placement), teardown_(teardown) {}

  // The action of rows that fail the job: an event RankFailed or JobFailed goes with it.
  void Record(v1::StoredJob& job, const Verdict& verdict);

  // JobRaiser::Fail.
  void Fail(v1::StoredJob& job, const Verdict& verdict);
  // The ranks of another epoch are ready: an event Recovered where a fault has led to it.
  void Recovered(v1::StoredJob& job);
  // A rank on this node failed. The first verdict stands, unless it was a mere consequence.
  void RankFailed(v1::StoredJob& job, const std::string& node, const Verdict& verdict);
  // Rank 0 says that training is over: the job has succeeded, or stopped without an order.
  void TrainingEnded(v1::StoredJob& job, const v1::TrainingEnded& ended);
  // Whether resilience.deadline is over, in a state where that matters.
  bool IsOverdue(const v1::Job& job) const;
  void DeadlineOver(v1::StoredJob& job);

 private:
  // While the job recovers: the first verdict stands, unless it was a mere consequence.
  void AnotherFault(v1::StoredJob& job, const std::string& node, const Verdict& verdict);
  // What is told of the fault that another epoch follows.
  void NoteFault(v1::StoredJob& job, const Verdict& verdict);

  KeeperTools tools_;
  JobPlacement* placement_;
  JobTeardown* teardown_;
};

}  // namespace mt::daemon
