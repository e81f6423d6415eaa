// Reports to the coordinator what the ranks of this node do now, as their beats say: one message a
// job and interval, with the ranks that have beaten since the one before. Nothing of it is stored,
// and what is lost is reported again. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "worker/node/loop/event_loop.h"

namespace megatrain::v1 {
class RankBeat;
class RankReading;
class RankTelemetry;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

class ReadingRelay {
 public:
  using JobEpoch = std::pair<std::string, int64_t>;
  struct Deps {
    EventLoop* loop;  // not owned; outlives the relay
    std::chrono::milliseconds interval;
    // Sends a message now or never.
    std::function<void(const megatrain::v1::WorkerMessage&)> send_now;
  };
  explicit ReadingRelay(Deps deps);
  ReadingRelay(const ReadingRelay&) = delete;
  ReadingRelay& operator=(const ReadingRelay&) = delete;
  ~ReadingRelay();

  // Whether the coordinator knows readings: an older one would log each as unknown.
  void SetWanted(bool wanted) { wanted_ = wanted; }
  void OnBeat(const JobEpoch& job, int rank, const megatrain::v1::RankBeat& beat);
  // The ranks of the job are gone from this node.
  void Forget(const JobEpoch& job);

 private:
  // What is known of a rank; totals are those of its newest beat.
  struct Rank {
    std::unique_ptr<megatrain::v1::RankReading> reading;
    std::map<std::string, double> phase_totals;
    bool reported = true;
  };

  static void TakePhases(const megatrain::v1::RankTelemetry& telemetry, Rank* rank);
  void Flush();

  const Deps deps_;
  bool wanted_ = false;
  EventLoop::TimerId timer_ = EventLoop::kNoTimer;
  std::map<JobEpoch, std::map<int, Rank>> jobs_;
};

}  // namespace mt::node
