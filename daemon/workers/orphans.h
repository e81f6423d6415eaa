// Ranks that run on nodes and that this store does not know to be closed: of a job that it does not
// know, or of a higher epoch than it has given (docs/design/control-plane.md#reconciliation). They
// are kept as ORPHANED allocations, whose slots are used, and are never killed by the machine.
// Where their job is known and all of its ranks are there, they are adopted; a job that is not
// known is rebuilt from its assignment when an operator says so. Not thread-safe (the core's
// thread).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/hub/worker_hub.h"
#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class HeldAllocation;
class ListOrphansResponse;
class RankStatus;
}  // namespace megatrain::v1

namespace mt::daemon {

class JobKeeper;

class Orphans {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    JobKeeper* keeper;
  };
  // All parts outlive it.
  explicit Orphans(const Parts& parts);
  ~Orphans();

  // The agent holds ranks that are neither open nor closed here.
  void Found(WorkerSession& from, const v1::HeldAllocation& held);
  // What an orphaned rank reports of itself.
  void TakeStatus(const AllocationKey& key, const v1::RankStatus& status);
  bool Contains(const AllocationKey& key) const;
  // Kills those whose epoch has been closed since: a later one was given, or the job has ended.
  void Tick();

  // One entry per job and epoch.
  void List(v1::ListOrphansResponse* response);
  // Ends the orphaned ranks of a job on one node, and counts them. NotFound (UNKNOWN_JOB).
  StatusOr<int> Kill(const std::string& node, const std::string& job_uid, const Order& order);
  // Rebuilds a job that is not known from its orphans, by uid, or by name where that is empty.
  // NotFound (UNKNOWN_JOB), AlreadyExists (NAME_IN_USE); FailedPrecondition (WRONG_STATE) where
  // this store has closed the job, ranks are missing, or their assignment has not come yet.
  StatusOr<v1::StoredJob*> Adopt(const std::string& job_uid, const std::string& name,
                                 const Order& order);

 private:
  // All orphans of one job and epoch.
  struct World {
    int size = 0;                       // number of ranks that there should be; 0: not known
    std::vector<v1::RankStatus> ranks;  // those whose agents are heard, by rank
    std::vector<std::string> nodes;
    std::string missing;  // why they cannot be adopted; empty: all are there
  };
  v1::StoredAllocation* AddRow(const AllocationKey& key, const v1::HeldAllocation& held);
  void FillRow(const v1::HeldAllocation& held, v1::StoredAllocation* row);
  World Gather(const std::string& job_uid, int64_t epoch);
  void AdoptIfComplete(const std::string& job_uid, int64_t epoch);
  std::string WhyNotAdopted(const std::string& job_uid, int64_t epoch, const World& world);
  int64_t NewestEpoch(const std::string& job_uid);
  StatusOr<std::string> UidOf(const std::string& job_uid, const std::string& name);
  Status CheckUnknown(const std::string& job_uid);
  StatusOr<std::unique_ptr<v1::StoredJob>> Rebuild(const std::string& job_uid, int64_t epoch);
  void Adopt(v1::StoredJob& job, int64_t epoch, const World& world, const Order& order);

  Parts parts_;
  // What agents have said of orphans since this coordinator began; the ledger has their rows.
  std::map<AllocationKey, std::unique_ptr<v1::HeldAllocation>> said_;
};

}  // namespace mt::daemon
