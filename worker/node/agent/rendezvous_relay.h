// Rendezvous between ranks and coordinator: what ranks set travels as a report; what they ask for
// is asked once per key, again after a reconnect, and kept, since values are written once. What a
// rank of this node has set is answered without the coordinator. Loop thread only.
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
    std::function<void(megatrain::v1::WorkerMessage)> report;           // must arrive
    std::function<void(const megatrain::v1::WorkerMessage&)> send_now;  // dropped when disconnected
  };
  using JobEpoch = std::pair<std::string, int64_t>;

  explicit RendezvousRelay(Deps deps) : deps_(std::move(deps)) {}

  void Set(const JobEpoch& job, const std::string& key, const std::string& value);
  void Get(const JobEpoch& job, const std::string& key, LinkId link);
  // From the coordinator.
  void OnValue(const JobEpoch& job, const std::string& key, const std::string& value);
  // Asks again for everything that is waited for.
  void OnRegistered();
  void Forget(const JobEpoch& job) { jobs_.erase(job); }

 private:
  struct Job {
    std::map<std::string, std::string> values;
    std::map<std::string, std::set<LinkId>> waiting;  // by key
  };

  void Ask(const JobEpoch& job, const std::string& key);
  void Answer(const std::string& key, const std::string& value, LinkId link);

  Deps deps_;
  std::map<JobEpoch, Job> jobs_;
};

}  // namespace mt::node
