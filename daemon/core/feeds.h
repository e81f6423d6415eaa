// Everything that readers follow live: jobs' states, their metrics, the logs of their ranks.
// Readers get bounded subscriptions and never hold up the core. Not thread-safe (the core's
// thread), except the subscriptions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "daemon/telemetry/step_feed.h"
#include "daemon/telemetry/subscription.h"

namespace megatrain::v1 {
class Job;
class LogChunk;
class LogReply;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;
class WorkerHub;

using JobSubscription = Subscription<std::shared_ptr<const v1::Job>>;
using LogSubscription = Subscription<std::shared_ptr<const v1::LogChunk>>;

class Feeds {
 public:
  Feeds(WorkerHub* hub, const base::Clock* clock) : hub_(hub), clock_(clock) {}

  // --- Jobs. The job now, then every published change; ends after a final state.
  std::shared_ptr<JobSubscription> WatchJob(const v1::Job& job);
  void UnwatchJob(const std::string& uid, const JobSubscription* subscription);
  // The job as it is on disk now. A final one ends its streams.
  void PublishJob(const v1::Job& job);

  // --- Metrics.
  StepFeed& StepsOf(const v1::Job& job);
  std::shared_ptr<MetricsSubscription> WatchMetrics(const v1::Job& job, int64_t since_step,
                                                    base::MonotonicTime::duration min_interval);
  void UnwatchMetrics(const std::string& uid, const MetricsSubscription* subscription);

  // --- Logs, read from the nodes where the ranks run or ran. The ranks exist.
  struct LogQuery {
    const v1::Job& job;
    std::span<const int> ranks;
    int lines;
    bool follow;
  };
  std::shared_ptr<LogSubscription> TailLogs(const LogQuery& query);
  void UntailLogs(const LogSubscription* subscription);
  void OnLogReply(const std::string& node, const v1::LogReply& reply);
  void OnNodeGone(const std::string& node);

  // Metrics of ended jobs are dropped after a while (T2).
  void Tick();
  void CloseAll(const Status& status);
  size_t num_log_requests() const { return log_requests_.size(); }
  size_t num_step_feeds() const { return steps_.size(); }

 private:
  struct LogRequest {
    std::shared_ptr<LogSubscription> subscription;
    std::string node;
    int rank;
  };
  struct JobSteps {
    StepFeed feed;
    base::MonotonicTime drop_at = base::MonotonicTime::max();
  };
  void CloseIfDone(const std::shared_ptr<LogSubscription>& subscription);

  WorkerHub* hub_;
  const base::Clock* clock_;
  std::map<std::string, std::vector<std::shared_ptr<JobSubscription>>> watchers_;  // by job uid
  std::map<std::string, JobSteps> steps_;
  int64_t next_log_request_ = 1;
  std::map<int64_t, LogRequest> log_requests_;
};

}  // namespace mt::daemon
