// Ends a rank whose job has failed elsewhere: breaks its waits, so that it can report and exit by
// itself, and ends the process where that does not help (P3: 3 s).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "common/base/mutex.h"
#include "worker/train/rank_groups.h"

namespace mt::rank {

class LeaveSwitch {
 public:
  // `exit` ends the process; called on a thread of the switch when the limit is over.
  LeaveSwitch(std::chrono::milliseconds limit, std::function<void()> exit);
  ~LeaveSwitch();
  LeaveSwitch(const LeaveSwitch&) = delete;
  LeaveSwitch& operator=(const LeaveSwitch&) = delete;

  // The groups to break; nullptr: none (any more).
  void SetGroups(train::RankGroups* groups);
  // Any thread, returns at once. The first call counts.
  void Leave(const std::string& reason);

 private:
  void Watch();

  const std::chrono::milliseconds limit_;
  const std::function<void()> exit_;
  base::Mutex mu_;
  base::CondVar changed_;
  train::RankGroups* groups_ GUARDED_BY(mu_) = nullptr;
  bool leaving_ GUARDED_BY(mu_) = false;
  bool over_ GUARDED_BY(mu_) = false;
  std::string reason_ GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace mt::rank
