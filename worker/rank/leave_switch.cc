// The thread sleeps until Leave or destruction; after Leave it waits for destruction until the
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
  base::MutexLock lock(&mu_);
  groups_ = groups;
  if (leaving_ && groups_ != nullptr) groups_->Abort(reason_);
}

void LeaveSwitch::Leave(const std::string& reason) {
  base::MutexLock lock(&mu_);
  if (leaving_) return;
  leaving_ = true;
  reason_ = reason;
  if (groups_ != nullptr) groups_->Abort(reason);
  changed_.NotifyAll();
}

void LeaveSwitch::Watch() {
  ::pthread_setname_np(::pthread_self(), "mt-leave");
  base::MutexLock lock(&mu_);
  while (!leaving_ && !over_) changed_.Wait(&mu_);
  const base::MonotonicTime deadline = base::Clock::Real()->Now() + limit_;
  while (!over_) {
    if (!changed_.WaitUntil(&mu_, deadline) && base::Clock::Real()->Now() >= deadline) {
      exit_();
      return;
    }
  }
}

}  // namespace mt::rank
