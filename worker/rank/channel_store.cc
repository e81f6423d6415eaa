// Values that have arrived are cached; a Get that finds none sends its request and waits for
// OnValue.
#include "worker/rank/channel_store.h"

#include <algorithm>

#include "megatrain/v1/rank.pb.h"

namespace mt::rank {
namespace {
constexpr std::chrono::seconds kAskAgain{2};
}

void ChannelStore::SendSet(const std::string& key, const std::string& value) {
  megatrain::v1::RankMessage message;
  message.mutable_rendezvous_set()->set_key(key);
  message.mutable_rendezvous_set()->set_value(value);
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
  for (bool again = false;; again = true) {
    std::map<std::string, std::string> repeated;
    {
      base::MutexLock lock(&mu_);
      const auto value = values_.find(key);
      if (value != values_.end()) return value->second;
      if (again) repeated = own_;
    }
    for (const auto& [own_key, own_value] : repeated) SendSet(own_key, own_value);
    megatrain::v1::RankMessage message;
    message.mutable_rendezvous_get()->set_key(key);
    send_(std::move(message));
    const base::MonotonicTime ask_again = base::Clock::Real()->Now() + kAskAgain;
    base::MutexLock lock(&mu_);
    while (!values_.contains(key)) {
      if (!abort_reason_.empty()) {
        return base::Error(absl::StatusCode::kAborted, "rendezvous given up: {}", abort_reason_);
      }
      if (changed_.WaitUntil(&mu_, std::min(deadline, ask_again))) continue;
      if (base::Clock::Real()->Now() < deadline) break;
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "rendezvous: nobody has set {} in time", key);
    }
  }
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
