// Tells the coordinator what rank 0 of a job is busy with, as its beats say, and once that it no
// longer is. Nothing is kept: what is lost is told again with the next beat. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

namespace megatrain::v1 {
class RankBeat;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

class ActivityRelay {
 public:
  using JobEpoch = std::pair<std::string, int64_t>;
  // Sends a message now or never.
  using SendNow = std::function<void(const megatrain::v1::WorkerMessage&)>;
  explicit ActivityRelay(SendNow send_now) : send_now_(std::move(send_now)) {}

  // A beat of world rank 0.
  void OnBeat(const JobEpoch& job, const megatrain::v1::RankBeat& beat);
  // The ranks of the job are gone from this node.
  void Forget(const JobEpoch& job) { busy_.erase(job); }

 private:
  const SendNow send_now_;
  std::set<JobEpoch> busy_;  // of which an activity was told last
};

}  // namespace mt::node
