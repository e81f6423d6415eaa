// Stops a rank whose job has failed elsewhere. It aborts the rank's communication, so that the rank
// can report and exit by itself, and ends the process if that takes longer than a limit
// (P3: 3 s).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "common/base/mutex.h"
#include "worker/parallel/groups/rank_groups.h"

namespace mt::rank {

// Thread-safe; has a thread of its own.
class LeaveSwitch {
 public:
  // `exit` must end the process; it is called on the switch's thread when the limit has passed
  // after Leave.
  LeaveSwitch(std::chrono::milliseconds limit, std::function<void()> exit);
  ~LeaveSwitch();
  LeaveSwitch(const LeaveSwitch&) = delete;
  LeaveSwitch& operator=(const LeaveSwitch&) = delete;

  // Sets the groups to abort; nullptr once they are about to be destroyed. Aborts them at once if
  // Leave was already called.
  void SetGroups(parallel::RankGroups* groups);
  // Aborts the groups and starts the limit. Returns at once; any thread. Only the first call
  // counts.
  void Leave(const std::string& reason);

 private:
  void Watch();

  const std::chrono::milliseconds limit_;
  const std::function<void()> exit_;
  base::Mutex mu_;
  base::CondVar changed_;
  parallel::RankGroups* groups_ GUARDED_BY(mu_) = nullptr;
  bool leaving_ GUARDED_BY(mu_) = false;
  bool over_ GUARDED_BY(mu_) = false;
  std::string reason_ GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace mt::rank
