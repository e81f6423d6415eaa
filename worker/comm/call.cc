// Texts of calls, the ring of the latest ones, and the listener's lifetime.
#include "worker/comm/call.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"

namespace mt::comm {

bool CommCall::HasShards() const {
  return op == CommOp::kReduceScatter || op == CommOp::kAllGather || op == CommOp::kAllToAll;
}

bool CommCall::Matches(const CommCall& other) const {
  return op == other.op && count == other.count && dtype == other.dtype && peer == other.peer &&
         reduce == other.reduce;
}

std::string CommCall::Describe() const {
  std::string text(Name(op));
  if (op == CommOp::kBarrier) return text;
  if (op == CommOp::kAllReduce || op == CommOp::kReduceScatter) {
    text += reduce == ReduceOp::kSum ? " sum" : " max";
  }
  text += fmt::format(" of {} {}{}", count, kernels::Name(dtype), HasShards() ? " a shard" : "");
  if (op == CommOp::kBroadcast) text += fmt::format(" from rank {}", peer);
  if (op == CommOp::kSend) text += fmt::format(" to rank {} on edge {}", peer, edge);
  if (op == CommOp::kRecv) text += fmt::format(" from rank {} on edge {}", peer, edge);
  return text;
}

int64_t FlightRecord::Add(const CommCall& call) {
  const base::MutexLock lock(&mu_);
  ++last_;
  calls_[static_cast<size_t>(last_) % kKept] = call;
  return last_;
}

int64_t FlightRecord::last() const {
  const base::MutexLock lock(&mu_);
  return last_;
}

std::string FlightRecord::Describe() const {
  const base::MutexLock lock(&mu_);
  std::string text;
  for (int64_t n = std::max<int64_t>(1, last_ - static_cast<int64_t>(kKept) + 1); n <= last_; ++n) {
    const CommCall& call = calls_[static_cast<size_t>(n) % kKept];
    text += fmt::format("{}call {}: {}", text.empty() ? "" : "; ", n, call.Describe());
  }
  return text;
}

ListenerSlot::~ListenerSlot() {
  const base::MutexLock lock(&mu_);
  CHECK(listener_ == nullptr) << "a group has not dropped its listener";
}

void ListenerSlot::Set(std::unique_ptr<CallListener> listener) {
  const base::MutexLock lock(&mu_);
  CHECK(listener_ == nullptr);
  listener_ = std::move(listener);
}

void ListenerSlot::Drop() {
  std::unique_ptr<CallListener> listener;
  const base::MutexLock lock(&mu_);
  listener = std::move(listener_);
}

void ListenerSlot::TellCall(int64_t number, const CommCall& call) {
  const base::MutexLock lock(&mu_);
  if (listener_ != nullptr) listener_->OnCall(number, call);
}

void ListenerSlot::TellBroken() {
  const base::MutexLock lock(&mu_);
  if (listener_ != nullptr) listener_->OnBroken();
}

}  // namespace mt::comm
