// Who is inside NCCL with a communicator: one thread at a time, as NCCL demands. A timed mutex, but
// one whose waits ThreadSanitizer sees (std::timed_mutex's it does not).
#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace mt::comm {

// Thread-safe.
class Turn {
 public:
  // Waits for the turn. Returns whether the caller has it, until Leave.
  bool EnterUntil(base::MonotonicTime deadline) LOCKS_EXCLUDED(mu_) {
    const base::MutexLock lock(&mu_);
    while (taken_) {
      if (!left_.WaitUntil(&mu_, deadline) && taken_) return false;
    }
    taken_ = true;
    return true;
  }
  bool TryEnter() { return EnterUntil({}); }
  void Leave() LOCKS_EXCLUDED(mu_) {
    const base::MutexLock lock(&mu_);
    taken_ = false;
    left_.NotifyOne();
  }

 private:
  base::Mutex mu_;
  base::CondVar left_;
  bool taken_ GUARDED_BY(mu_) = false;
};

}  // namespace mt::comm
