// Stops a rank whose job has failed. Where that was elsewhere it aborts the rank's communication,
// so that the rank can report and exit by itself; in both cases it ends the process if that takes
// longer than a limit (P3: 3 s), also where the abort itself waits for a device for ever.
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
  // after Leave or Expect.
  LeaveSwitch(std::chrono::milliseconds limit, std::function<void()> exit);
  ~LeaveSwitch();
  LeaveSwitch(const LeaveSwitch&) = delete;
  LeaveSwitch& operator=(const LeaveSwitch&) = delete;

  // Sets the groups to abort; nullptr once they are about to be destroyed: returns when no abort of
  // them is under way. Aborts them at once if Leave was already called.
  void SetGroups(parallel::RankGroups* groups);
  // Starts the limit and aborts the groups; any thread. Only the first call counts.
  void Leave(const std::string& reason);
  // Starts the limit alone: the rank has failed by itself and ends its groups. Any thread.
  void Expect();

 private:
  void Watch();
  void AbortGroups(parallel::RankGroups* groups, const std::string& reason);

  const std::chrono::milliseconds limit_;
  const std::function<void()> exit_;
  base::Mutex mu_;
  base::CondVar changed_;
  parallel::RankGroups* groups_ GUARDED_BY(mu_) = nullptr;
  bool counting_ GUARDED_BY(mu_) = false;  // the limit has begun
  bool leaving_ GUARDED_BY(mu_) = false;
  bool aborting_ GUARDED_BY(mu_) = false;
  bool over_ GUARDED_BY(mu_) = false;
  std::string reason_ GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace mt::rank
