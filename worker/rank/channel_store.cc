#include "worker/rank/channel_store.h"

#include <algorithm>

#include "megatrain/v1/rank.pb.h"

namespace mt::rank {
namespace {
constexpr std::chrono::seconds kAskAgain{2};
}

Status ChannelStore::Set(const std::string& key, std::string_view bytes) {
  megatrain::v1::RankMessage message;
  message.mutable_rendezvous_set()->set_key(key);
  message.mutable_rendezvous_set()->set_value(std::string(bytes));
  send_(std::move(message));
  return OkStatus();
}

StatusOr<std::string> ChannelStore::Get(const std::string& key, base::MonotonicTime deadline) {
  for (;;) {
    {
      base::MutexLock lock(&mu_);
      const auto value = values_.find(key);
      if (value != values_.end()) return value->second;
    }
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
