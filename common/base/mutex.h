// A mutex that clang's -Wthread-safety can check, after leveldb's port layer. Members name the lock
// that guards them: `int n_ GUARDED_BY(mu_);`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// GUARDED_BY, EXCLUSIVE_LOCKS_REQUIRED, LOCKS_EXCLUDED and the other annotations.
#include <absl/base/thread_annotations.h>

namespace mt::base {

// Not recursive; waiting threads are not served in any particular order.
class LOCKABLE Mutex {
 public:
  void Lock() EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  bool TryLock() EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  void Unlock() UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for the duration of a scope.
class SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mutex_;
};

// Condition variable for a Mutex that the caller holds. Wakeups may be spurious: loop on the
// condition at the call site, where the analysis sees which members it reads.
class CondVar {
 public:
  void Wait(Mutex* mutex) EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Waits until notified or until `deadline`; returns false when the deadline passed.
  bool WaitUntil(Mutex* mutex, std::chrono::steady_clock::time_point deadline)
      EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool in_time = cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace mt::base
