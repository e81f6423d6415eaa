// A bounded queue between the core and one reader of a stream. A reader that is too slow loses the
// oldest items and is told how many (A4): it never holds up the core, and memory stays bounded.
// What lies in the past can come before the queue, read as the reader takes it. Thread-safe; one
// reader.
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

template <class T>
class Subscription {
 public:
  // Every item that is lost is also counted in *dropped_total, which must live as long as items are
  // pushed.
  explicit Subscription(size_t capacity, std::atomic<int64_t>* dropped_total = nullptr)
      : capacity_(capacity), dropped_total_(dropped_total) {}

  // --- Before the reader starts. Gives the items that come before the queue, some at a time, none
  // when there are no more; called on the reader's thread, may block.
  using Backlog = std::function<std::vector<T>()>;
  void SetBacklog(Backlog backlog) { backlog_ = std::move(backlog); }

  // --- The core's side.
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

  // Nothing more will come; what is queued can still be read. The first call counts.
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

  // --- The reader's side.
  struct Taken {
    std::optional<T> item;  // set: an item
    int64_t dropped = 0;    // with an item: how many were lost just before it
    bool ended = false;     // nothing more: `status` says why
    Status status;
  };

  // The next item, or the end, or neither: then `wake` is called once, from the core's thread, when
  // there is something.
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
  Backlog backlog_;     // the reader's
  std::deque<T> past_;  // the reader's
  mutable base::Mutex mu_;
  std::deque<T> queue_ GUARDED_BY(mu_);
  int64_t dropped_ GUARDED_BY(mu_) = 0;
  bool ended_ GUARDED_BY(mu_) = false;
  Status status_ GUARDED_BY(mu_);
  std::function<void()> wake_ GUARDED_BY(mu_);
};

}  // namespace mt::daemon
