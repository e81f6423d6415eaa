// The coordinator's /metrics page (METRICS.md): its own series and those of all jobs. The core's
// thread brings them up to date about once a second; a scrape reads the values set last and never
// makes the core wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/metrics/registry.h"
#include "daemon/feeds/event_feed.h"
#include "daemon/meters/job_meter.h"

namespace megatrain::v1 {
class Event;
class Job;
class StoredJob;
}  // namespace megatrain::v1

namespace mt::daemon {

class Core;
class History;

class CoordinatorMeter {
 public:
  // Borrowed objects that outlive the meter, and facts about the process.
  struct Config {
    metrics::Registry* registry;  // where all series are registered
    const base::Clock* clock;
    // may be null: no history, no count of its errors
    const History* history;
    std::string state_dir;
    std::string version;
  };
  explicit CoordinatorMeter(Config config);
  CoordinatorMeter(const CoordinatorMeter&) = delete;
  CoordinatorMeter& operator=(const CoordinatorMeter&) = delete;

  // Copies the core's current state into the series, at most once a second and not while a scrape
  // is collecting. Called on the core's thread.
  void Update(Core& core);
  // Records the duration of a commit to the store, and of a flush of the history. Thread-safe.
  void OnCommit(double seconds) { commit_seconds_.Observe(seconds); }
  void OnHistoryFlush(double seconds) { history_seconds_.Observe(seconds); }
  // Sets what only a scrape needs: memory of the process, free space. On the scraping thread.
  void UpdateProcess();

 private:
  void DeclareOwn(metrics::Registry* registry);
  void TakeEvents(Core& core);
  void TakeEvent(Core& core, const megatrain::v1::Event& event, const JobMeter::Moment& moment);
  void UpdateJobs(Core& core, const JobMeter::Moment& moment);
  void UpdateNodes(Core& core);
  void UpdateCounts(Core& core);
  JobMeter* MeterOf(const megatrain::v1::Job& job, const JobMeter::Moment& moment);

  const Config config_;
  JobFamilies families_;
  metrics::Family<metrics::Gauge> last_heartbeat_;
  metrics::Gauge resident_, queue_depth_, storage_free_, store_read_only_, superseded_, term_;
  using SlotKind = std::pair<std::string, std::string>;  // device, state
  std::map<SlotKind, metrics::Gauge> slots_;
  std::map<std::string, metrics::Gauge> watchers_;
  std::map<int, metrics::Gauge> workers_;
  metrics::Histogram queue_wait_, commit_seconds_, history_seconds_;
  metrics::Counter leases_, fenced_, held_mismatches_, malformed_, invalid_, history_errors_,
      dropped_;

  // A job whose series exist.
  struct Shown {
    std::string uid;
    std::unique_ptr<JobMeter> meter;
  };
  std::map<std::string, Shown> jobs_;         // by "namespace/name", unique at any time
  std::map<std::string, int64_t> queued_us_;  // by uid: Unix time at which the job entered QUEUED
  std::map<std::string, metrics::SeriesGroup> nodes_;
  std::map<std::string, metrics::Gauge> heartbeats_;
  std::shared_ptr<EventSubscription> events_;
  base::MonotonicTime next_update_{};
};

}  // namespace mt::daemon
