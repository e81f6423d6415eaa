// Rendezvous through the agent: what ranks of other nodes set comes by way of the coordinator.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "common/base/mutex.h"
#include "worker/comm/rendezvous_store.h"

namespace megatrain::v1 {
class RankMessage;
}

namespace mt::rank {

class ChannelStore final : public comm::RendezvousStore {
 public:
  using Send = std::function<void(megatrain::v1::RankMessage)>;
  explicit ChannelStore(Send send) : send_(std::move(send)) {}

  // Returns once it is on its way; a key that is there with another value is not noticed.
  Status Set(const std::string& key, std::string_view bytes) override;
  // Asks, and asks again every few seconds, since a question is lost with its stream; what this
  // rank has set goes with it again, since that may be lost with an agent.
  StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) override;

  // From the agent.
  void OnValue(const std::string& key, const std::string& value);
  // Ends all waits, now and later, with kAborted.
  void Abort(const std::string& reason);

 private:
  const Send send_;
  void SendSet(const std::string& key, const std::string& value);

  base::Mutex mu_;
  base::CondVar changed_;
  std::map<std::string, std::string> values_ GUARDED_BY(mu_);
  std::map<std::string, std::string> own_ GUARDED_BY(mu_);  // set by this rank
  std::string abort_reason_ GUARDED_BY(mu_);                // empty: not aborted
};

}  // namespace mt::rank
