// One mutex and one condition variable for all waits of a group; every change wakes all waiters,
// which then check their own condition.
#include "worker/comm/threads/room.h"

#include <utility>

namespace mt::comm {

StatusOr<bool> ThreadsRoom::Join(const GroupSpec& spec) {
  const base::MutexLock lock(&mu_);
  if (spec.members != members_) {
    return base::FailedPrecondition("group {}: world rank {} names other members than the first",
                                    spec.name, spec.members[static_cast<size_t>(spec.my_index)]);
  }
  auto present = present_[static_cast<size_t>(spec.my_index)];
  if (present) {
    return base::FailedPrecondition("group {}: rank {} (world {}) joins twice", spec.name,
                                    spec.my_index, members_[static_cast<size_t>(spec.my_index)]);
  }
  present = true;
  const bool complete = ++num_present_ == static_cast<int>(members_.size());
  if (complete) changed_.NotifyAll();
  return complete;
}

Status ThreadsRoom::AwaitAll(const GroupSpec& spec, base::MonotonicTime deadline) {
  const base::MutexLock lock(&mu_);
  for (bool in_time = true; num_present_ < static_cast<int>(members_.size());
       in_time = changed_.WaitUntil(&mu_, deadline)) {
    if (in_time && !abandoned_) continue;
    abandoned_ = true;
    changed_.NotifyAll();
    return base::Error(absl::StatusCode::kDeadlineExceeded,
                       "group {}: {} did not come; see their logs", spec.name, Missing());
  }
  return OkStatus();
}

std::string ThreadsRoom::Missing() const {
  std::string text;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (present_[i]) continue;
    text += fmt::format("{}rank {} (world {})", text.empty() ? "" : ", ", i, members_[i]);
  }
  return text;
}

Status ThreadsRoom::BrokenStatus() const {
  if (broken_by_ < 0) return OkStatus();
  return base::Unavailable("rank {} (world {}) broke the group; its log has the cause", broken_by_,
                           members_[static_cast<size_t>(broken_by_)]);
}

Status ThreadsRoom::LeftStatus(int index) const {
  if (present_[static_cast<size_t>(index)]) return OkStatus();
  return base::Unavailable("rank {} (world {}) has left the group; its log has the cause", index,
                           members_[static_cast<size_t>(index)]);
}

Status ThreadsRoom::AnyLeft() const {
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) RETURN_IF_ERROR(LeftStatus(i));
  return OkStatus();
}

Status ThreadsRoom::Meet(bool reading, base::MonotonicTime deadline) {
  const base::MutexLock lock(&mu_);
  RETURN_IF_ERROR(BrokenStatus());
  const int64_t mine = meeting_;
  if (++num_arrived_ == static_cast<int>(members_.size())) {
    num_arrived_ = 0;
    ++meeting_;
    changed_.NotifyAll();
  }
  bool in_time = true;
  while (meeting_ == mine) {
    RETURN_IF_ERROR(BrokenStatus());
    RETURN_IF_ERROR(AnyLeft());
    if (!in_time) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "{} of {} ranks came within the deadline; see the others' logs",
                         num_arrived_, members_.size());
    }
    in_time = changed_.WaitUntil(&mu_, deadline);
  }
  if (reading) {
    // A member that has broken since then may be about to release its memory.
    RETURN_IF_ERROR(BrokenStatus());
    ++num_readers_;
  }
  return OkStatus();
}

void ThreadsRoom::EndReading() {
  const base::MutexLock lock(&mu_);
  if (--num_readers_ == 0) changed_.NotifyAll();
}

void ThreadsRoom::AwaitReaders() {
  const base::MutexLock lock(&mu_);
  while (num_readers_ > 0) changed_.Wait(&mu_);
}

Status ThreadsRoom::Post(const Edge& edge, Letter letter, base::MonotonicTime deadline) {
  const base::MutexLock lock(&mu_);
  std::deque<Letter>& queue = mail_[edge];
  for (bool in_time = true;; in_time = changed_.WaitUntil(&mu_, deadline)) {
    RETURN_IF_ERROR(BrokenStatus());
    RETURN_IF_ERROR(LeftStatus(edge.to));
    if (static_cast<int>(queue.size()) < ProcessGroup::kSendWindow) break;
    if (!in_time) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "{} messages of this edge are unread; see the receiver's log",
                         queue.size());
    }
  }
  queue.push_back(std::move(letter));
  changed_.NotifyAll();
  return OkStatus();
}

StatusOr<Letter> ThreadsRoom::Take(const Edge& edge, base::MonotonicTime deadline) {
  const base::MutexLock lock(&mu_);
  std::deque<Letter>& queue = mail_[edge];
  for (bool in_time = true; queue.empty(); in_time = changed_.WaitUntil(&mu_, deadline)) {
    RETURN_IF_ERROR(BrokenStatus());
    RETURN_IF_ERROR(LeftStatus(edge.from));
    if (!in_time) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "no message came within the deadline; see the sender's log");
    }
  }
  Letter letter = std::move(queue.front());
  queue.pop_front();
  changed_.NotifyAll();
  return letter;
}

void ThreadsRoom::Break(int index) {
  const base::MutexLock lock(&mu_);
  if (broken_by_ < 0) broken_by_ = index;
  changed_.NotifyAll();
}

void ThreadsRoom::Leave(int index) {
  const base::MutexLock lock(&mu_);
  present_[static_cast<size_t>(index)] = false;
  changed_.NotifyAll();
}

}  // namespace mt::comm
