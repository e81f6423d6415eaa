// Values that have arrived are cached; a Get that finds none sends its request once and waits for
// OnValue.
#include "worker/rank/channel_store.h"

#include <utility>

#include "megatrain/v1/rank.pb.h"

namespace mt::rank {

void ChannelStore::SendSet(const std::string& key, const std::string& value) {
  megatrain::v1::RankMessage message;
  message.mutable_rendezvous_set()->set_key(key);
  message.mutable_rendezvous_set()->set_value(value);
  send_(std::move(message));
}

void ChannelStore::SendGet(const std::string& key) {
  megatrain::v1::RankMessage message;
  message.mutable_rendezvous_get()->set_key(key);
  send_(std::move(message));
}

Status ChannelStore::Set(const std::string& key, std::string_view bytes) {
  const std::string value(bytes);
  {
    base::MutexLock lock(&mu_);
    own_.insert_or_assign(key, value);
  }
  SendSet(key, value);
  return OkStatus();
}

StatusOr<std::string> ChannelStore::Get(const std::string& key, base::MonotonicTime deadline) {
  {
    const base::MutexLock lock(&mu_);
    const auto value = values_.find(key);
    if (value != values_.end()) return value->second;
    awaited_.insert(key);
  }
  SendGet(key);
  const base::MutexLock lock(&mu_);
  auto value = Wait(key, deadline);
  awaited_.erase(awaited_.find(key));
  return value;
}

StatusOr<std::string> ChannelStore::Wait(const std::string& key, base::MonotonicTime deadline) {
  for (;;) {
    const auto value = values_.find(key);
    if (value != values_.end()) return value->second;
    if (!abort_reason_.empty()) {
      return base::Error(absl::StatusCode::kAborted, "rendezvous given up: {}", abort_reason_);
    }
    if (base::Clock::Real()->Now() >= deadline) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "rendezvous: nobody has set {} in time", key);
    }
    (void)changed_.WaitUntil(&mu_, deadline);
  }
}

void ChannelStore::OnAttached() {
  std::map<std::string, std::string> own;
  std::multiset<std::string> awaited;
  {
    const base::MutexLock lock(&mu_);
    own = own_;
    awaited = awaited_;
  }
  for (const auto& [key, value] : own) SendSet(key, value);
  for (const std::string& key : awaited) SendGet(key);
}

void ChannelStore::OnValue(const std::string& key, const std::string& value) {
  base::MutexLock lock(&mu_);
  values_.emplace(key, value);
  changed_.NotifyAll();
}

void ChannelStore::Abort(const std::string& reason) {
  base::MutexLock lock(&mu_);
  abort_reason_ = reason.empty() ? "asked to leave" : reason;
  changed_.NotifyAll();
}

}  // namespace mt::rank
