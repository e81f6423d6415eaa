// Relays the question of a rank whether its epoch is open to the coordinator, and the answer back.
// Both may be lost with a connection: the rank waits for so long only (L10). Loop thread only; no
// call blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "worker/node/ranks/rank_links.h"

namespace megatrain::v1 {
class EpochAnswer;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

class EpochRelay {
 public:
  struct Deps {
    RankLinks* links;
    std::function<void(const megatrain::v1::WorkerMessage&)> send_now;  // dropped if disconnected
  };
  using JobEpoch = std::pair<std::string, int64_t>;

  explicit EpochRelay(Deps deps) : deps_(std::move(deps)) {}

  // A rank asks over this link; a newer question takes the place of an older one.
  void Ask(const JobEpoch& job, int64_t query_id, LinkId link);
  // Hands the answer to the link that has asked; drops it where nobody waits for it.
  void OnAnswer(const megatrain::v1::EpochAnswer& answer);
  void Forget(const JobEpoch& job) { asked_.erase(job); }

 private:
  struct Question {
    int64_t query_id;
    LinkId link;
  };

  Deps deps_;
  std::map<JobEpoch, Question> asked_;  // not answered
};

}  // namespace mt::node
