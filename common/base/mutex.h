// A mutex that clang's -Wthread-safety understands, after leveldb's port. Members name their lock:
// `int n_ GUARDED_BY(mu_);`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MT_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define MT_THREAD_ANNOTATION(x)
#endif
// Other libraries define some of these names with the same meaning.
#ifndef GUARDED_BY
#define GUARDED_BY(x) MT_THREAD_ANNOTATION(guarded_by(x))
#endif
#ifndef EXCLUSIVE_LOCKS_REQUIRED
#define EXCLUSIVE_LOCKS_REQUIRED(...) MT_THREAD_ANNOTATION(exclusive_locks_required(__VA_ARGS__))
#endif
#ifndef LOCKS_EXCLUDED
#define LOCKS_EXCLUDED(...) MT_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#endif

namespace mt::base {

class MT_THREAD_ANNOTATION(lockable) Mutex {
 public:
  void Lock() MT_THREAD_ANNOTATION(exclusive_lock_function()) { mutex_.lock(); }
  void Unlock() MT_THREAD_ANNOTATION(unlock_function()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class MT_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) MT_THREAD_ANNOTATION(exclusive_lock_function(mutex))
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() MT_THREAD_ANNOTATION(unlock_function()) { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mutex_;
};

// Waits with the mutex held by the caller; loop on the condition at the call site, so that the
// analysis sees its reads.
class CondVar {
 public:
  void Wait(Mutex* mutex) EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False when the deadline passed.
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
