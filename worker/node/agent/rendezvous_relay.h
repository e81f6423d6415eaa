// Relays the rendezvous of ranks to the coordinator. A value that a rank sets is sent as a report,
// which must arrive; a value that ranks wait for is requested once per key, and again after a
// reconnect. Values are written once, so they are cached: what a rank of this node has set is
// answered without the coordinator. Loop thread only; no call blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "worker/node/ranks/rank_links.h"

namespace megatrain::v1 {
class WorkerMessage;
}

namespace mt::node {

class RendezvousRelay {
 public:
  struct Deps {
    RankLinks* links;
    std::function<void(megatrain::v1::WorkerMessage)> report;           // kept until acknowledged
    std::function<void(const megatrain::v1::WorkerMessage&)> send_now;  // dropped if disconnected
  };
  using JobEpoch = std::pair<std::string, int64_t>;

  explicit RendezvousRelay(Deps deps) : deps_(std::move(deps)) {}

  void Set(const JobEpoch& job, const std::string& key, const std::string& value);
  void Get(const JobEpoch& job, const std::string& key, LinkId link);
  // The coordinator has sent a value: answers the ranks that wait for it.
  void OnValue(const JobEpoch& job, const std::string& key, const std::string& value);
  // Requests again every key that ranks wait for.
  void OnRegistered();
  void Forget(const JobEpoch& job) { jobs_.erase(job); }

 private:
  struct Job {
    std::map<std::string, std::string> values;
    std::map<std::string, std::set<LinkId>> waiting;  // links by key
  };

  void Ask(const JobEpoch& job, const std::string& key);
  void Answer(const std::string& key, const std::string& value, LinkId link);

  Deps deps_;
  std::map<JobEpoch, Job> jobs_;
};

}  // namespace mt::node
