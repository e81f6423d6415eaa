// The Prometheus series of this node (METRICS.md): those of every rank, from its beats, and those
// of the agent itself. A rank's series appear when it starts and are removed five minutes after its
// job has ended (control-plane T2); a rank has at most kMaxSeriesPerRank whatever it sends. Loop
// thread only, but for the registry.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/registry.h"
#include "worker/node/loop/event_loop.h"

namespace megatrain::v1 {
class AllocationRecord;
class RankTelemetry;
}  // namespace megatrain::v1

namespace mt::node {

class RankSeries;

class WorkerMetrics {
 public:
  using JobEpoch = std::pair<std::string, int64_t>;
  static constexpr int kMaxSeriesPerRank = 120;

  struct Config {
    std::string node;
    std::string version;
    std::chrono::milliseconds kept_after_end{300'000};  // T2
  };
  WorkerMetrics(Config config, EventLoop* loop, metrics::Registry* registry);
  ~WorkerMetrics();
  WorkerMetrics(const WorkerMetrics&) = delete;
  WorkerMetrics& operator=(const WorkerMetrics&) = delete;

  // The ranks of this record run here: creates their series in place of those of an earlier epoch,
  // or of an earlier job of that name.
  void OnJob(const megatrain::v1::AllocationRecord& record);
  void OnStep(const JobEpoch& job, int rank, int64_t step);
  void OnTelemetry(const JobEpoch& job, int rank, const megatrain::v1::RankTelemetry& telemetry);
  // All ranks of the job are gone: its series are removed after kept_after_end.
  void OnJobGone(const JobEpoch& job);

  void OnHeartbeatAnswered(std::chrono::nanoseconds round_trip);
  void OnDisconnected();
  // The agent's own state, set once a second (pulse.h).
  struct Slots {
    int used = 0;
    int free = 0;
    int out_of_order = 0;
  };
  struct Now {
    bool registered = false;
    bool disobeys = false;
    int64_t term = 0;
    Slots gpus;
    Slots cpu_slots;
    int64_t reports_queued = 0;
    int64_t steps_dropped = 0;
    int64_t resident_bytes = 0;
  };
  void Set(const Now& now);

 private:
  struct Families;
  struct Own;
  struct Job;

  RankSeries* Find(const JobEpoch& job, int rank);

  const Config config_;
  EventLoop* loop_;
  const std::unique_ptr<Families> families_;
  const std::unique_ptr<Own> own_;
  std::map<JobEpoch, std::unique_ptr<Job>> jobs_;
};

}  // namespace mt::node
