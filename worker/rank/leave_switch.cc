// The thread sleeps until the limit begins or destruction; then it waits for destruction until the
// limit.
#include "worker/rank/leave_switch.h"

#include <pthread.h>
#include <utility>

namespace mt::rank {

LeaveSwitch::LeaveSwitch(std::chrono::milliseconds limit, std::function<void()> exit)
    : limit_(limit), exit_(std::move(exit)), thread_([this] { Watch(); }) {}

LeaveSwitch::~LeaveSwitch() {
  {
    base::MutexLock lock(&mu_);
    over_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void LeaveSwitch::SetGroups(parallel::RankGroups* groups) {
  std::string reason;
  {
    base::MutexLock lock(&mu_);
    while (aborting_) changed_.Wait(&mu_);
    groups_ = groups;
    if (!leaving_ || groups == nullptr) return;
    aborting_ = true;
    reason = reason_;
  }
  AbortGroups(groups, reason);
}

void LeaveSwitch::Leave(const std::string& reason) {
  parallel::RankGroups* groups = nullptr;
  {
    base::MutexLock lock(&mu_);
    if (leaving_) return;
    counting_ = leaving_ = true;
    reason_ = reason;
    groups = groups_;
    aborting_ = groups != nullptr;
    changed_.NotifyAll();
  }
  if (groups != nullptr) AbortGroups(groups, reason);
}

void LeaveSwitch::Expect() {
  base::MutexLock lock(&mu_);
  counting_ = true;
  changed_.NotifyAll();
}

// Without the lock: the abort may wait for the device, and the limit must pass meanwhile.
void LeaveSwitch::AbortGroups(parallel::RankGroups* groups, const std::string& reason) {
  groups->Abort(reason);
  base::MutexLock lock(&mu_);
  aborting_ = false;
  changed_.NotifyAll();
}

void LeaveSwitch::Watch() {
  ::pthread_setname_np(::pthread_self(), "mt-leave");
  base::MutexLock lock(&mu_);
  while (!counting_ && !over_) changed_.Wait(&mu_);
  const base::MonotonicTime deadline = base::Clock::Real()->Now() + limit_;
  while (!over_) {
    if (!changed_.WaitUntil(&mu_, deadline) && base::Clock::Real()->Now() >= deadline) {
      exit_();
      return;
    }
  }
}

}  // namespace mt::rank
