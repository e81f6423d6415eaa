// A bounded queue between the core and one reader of a stream. A reader that is too slow loses the
// oldest items and is told how many (A4): it never delays the core, and memory stays bounded. Items
// from the past (a backlog) can precede the queue; they are read as the reader takes them.
// Thread-safe, with a single reader.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace mt::daemon {

// T is a small value, typically of shared pointers.
template <class T>
class Subscription {
 public:
  // `capacity` bounds the queue. Each lost item is also counted in *dropped_total (may be null),
  // which must live as long as items are pushed.
  explicit Subscription(size_t capacity, std::atomic<int64_t>* dropped_total = nullptr)
      : capacity_(capacity), dropped_total_(dropped_total) {}

  // --- Before the reader starts. Sets the source of the items that precede the queue: each call
  // returns some, and none when there are no more. It is called on the reader's thread and may
  // block.
  using Backlog = std::function<std::vector<T>()>;
  void SetBacklog(Backlog backlog) { backlog_ = std::move(backlog); }

  // --- For the core. Never blocks for long; calls the reader's waker without holding the lock.
  void Push(T item) {
    std::function<void()> wake;
    {
      const base::MutexLock lock(&mu_);
      if (ended_) return;
      if (queue_.size() == capacity_) {
        queue_.pop_front();
        ++dropped_;
        if (dropped_total_ != nullptr) ++*dropped_total_;
      }
      queue_.push_back(std::move(item));
      wake = std::exchange(wake_, nullptr);
    }
    if (wake) wake();
  }

  // Ends the stream: queued items can still be read, then the reader gets `status`. Only the first
  // call counts.
  void Close(Status status) {
    std::function<void()> wake;
    {
      const base::MutexLock lock(&mu_);
      if (ended_) return;
      ended_ = true;
      status_ = std::move(status);
      wake = std::exchange(wake_, nullptr);
    }
    if (wake) wake();
  }

  // --- For the reader.
  struct Taken {
    std::optional<T> item;  // set: the next item
    int64_t dropped = 0;    // with an item: number of items lost immediately before it
    bool ended = false;     // the stream has ended; `status` says why
    Status status;
  };

  // Returns the next item, or the end, or neither. In the last case `wake` is called once, on the
  // core's thread, as soon as there is something to take.
  Taken Take(std::function<void()> wake) {
    Taken out;
    if (TakeFromBacklog(&out)) return out;
    const base::MutexLock lock(&mu_);
    if (!queue_.empty()) {
      out.item = std::move(queue_.front());
      queue_.pop_front();
      out.dropped = std::exchange(dropped_, 0);
    } else if (ended_) {
      out.ended = true;
      out.status = status_;
    } else {
      wake_ = std::move(wake);
    }
    return out;
  }

  size_t num_queued() const {
    const base::MutexLock lock(&mu_);
    return queue_.size();
  }

 private:
  bool TakeFromBacklog(Taken* out) {
    if (past_.empty() && backlog_) {
      for (T& item : backlog_()) past_.push_back(std::move(item));
      if (past_.empty()) backlog_ = nullptr;
    }
    if (past_.empty()) return false;
    out->item = std::move(past_.front());
    past_.pop_front();
    return true;
  }

  const size_t capacity_;
  std::atomic<int64_t>* const dropped_total_;
  Backlog backlog_;     // used by the reader only
  std::deque<T> past_;  // used by the reader only
  mutable base::Mutex mu_;
  std::deque<T> queue_ GUARDED_BY(mu_);
  int64_t dropped_ GUARDED_BY(mu_) = 0;
  bool ended_ GUARDED_BY(mu_) = false;
  Status status_ GUARDED_BY(mu_);
  std::function<void()> wake_ GUARDED_BY(mu_);
};

}  // namespace mt::daemon
