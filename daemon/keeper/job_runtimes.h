// What the coordinator knows of a live job and need not survive a restart: deadlines by the
// monotonic clock, and which agents have taken a kill. Not thread-safe (the core's thread).
#pragma once

#include <map>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

struct JobRuntime {
  base::MonotonicTime born{};                // submission, on the monotonic clock
  base::MonotonicTime placement_deadline{};  // ADMITTED: agents have answered by then (P6)
  base::MonotonicTime stop_deadline{};       // STOPPING, RELEASING without a kill: then one is sent
  base::MonotonicTime kill_again{};          // with a kill: then it is sent again (P3)
  base::MonotonicTime retry_at{};            // QUEUED: not placed before
  base::MonotonicTime without_ranks_since{};  // no node holds a rank of it, or not all (P7)
  base::MonotonicTime against_goal_since{};   // at rest, and its ranks do otherwise (P7)
  base::MonotonicTime starting_since{};       // STARTING, with all of its nodes heard
  base::MonotonicTime pausing_since{};        // PAUSING, all nodes heard, since its last step
  int64_t pausing_step = 0;                   // that step
  std::set<std::string> kill_acked;  // nodes: what they report from now on is the kill's doing
};

class JobRuntimes {
 public:
  // Both outlive it. The clock's wall time is the one that is believed.
  JobRuntimes(Ledger* ledger, const base::Clock* clock) : ledger_(ledger), clock_(clock) {}

  // Begins one for a job that has none. The reference is valid until Forget.
  JobRuntime& Of(const v1::Job& job);
  // The job has ended or was deleted.
  void Forget(const std::string& uid) { runtimes_.erase(uid); }
  // Before this time a job whose placement failed is not placed again.
  base::MonotonicTime RetryAt(const std::string& uid) const;

 private:
  Ledger* ledger_;
  const base::Clock* clock_;
  std::map<std::string, JobRuntime> runtimes_;  // by job uid
};

}  // namespace mt::daemon
