// Rendezvous store over the agent's channel. Values of ranks on other nodes come through the
// coordinator.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/base/mutex.h"
#include "worker/comm/rendezvous_store.h"

namespace megatrain::v1 {
class RankMessage;
}

namespace mt::rank {

// Thread-safe.
class ChannelStore final : public comm::RendezvousStore {
 public:
  using Send = std::function<void(megatrain::v1::RankMessage)>;
  explicit ChannelStore(Send send) : send_(std::move(send)) {}

  // Sends the value and returns. Unlike other stores it does not detect a key that has another
  // value.
  Status Set(const std::string& key, std::string_view bytes) override;
  // Blocks until the value arrives. kDeadlineExceeded; kAborted after Abort.
  StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) override;

  // Called when a stream to the agent has begun: says all again that may have been lost with the
  // one before, or with an agent that had not passed it on: what this rank has set, and what it
  // waits for.
  void OnAttached();
  // Called when the agent delivers a value.
  void OnValue(const std::string& key, const std::string& value);
  // Ends all waits with kAborted, current and future ones.
  void Abort(const std::string& reason);

 private:
  void SendSet(const std::string& key, const std::string& value);
  void SendGet(const std::string& key);
  // Blocks until the value is there or the deadline has passed.
  StatusOr<std::string> Wait(const std::string& key, base::MonotonicTime deadline)
      EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Send send_;

  base::Mutex mu_;
  base::CondVar changed_;
  std::map<std::string, std::string> values_ GUARDED_BY(mu_);
  std::map<std::string, std::string> own_ GUARDED_BY(mu_);  // set by this rank
  std::multiset<std::string> awaited_ GUARDED_BY(mu_);      // asked for and not there yet
  std::string abort_reason_ GUARDED_BY(mu_);                // empty: not aborted
};

}  // namespace mt::rank
