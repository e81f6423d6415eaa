// Everything that readers follow live: jobs' states, their metrics, the logs of their ranks.
// Readers get bounded subscriptions and never hold up the core. Not thread-safe (the core's
// thread), except the subscriptions.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "daemon/feeds/job_feed.h"
#include "daemon/feeds/rank_board.h"
#include "daemon/telemetry/step_feed.h"
#include "daemon/telemetry/subscription.h"

namespace megatrain::v1 {
class Job;
class LogChunk;
class LogReply;
class StepsReport;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;
class History;
class WorkerHub;

using LogSubscription = Subscription<std::shared_ptr<const v1::LogChunk>>;

class Feeds {
 public:
  // All outlive the feeds. Without a history the newest steps are all that there is.
  Feeds(WorkerHub* hub, const base::Clock* clock, History* history)
      : hub_(hub), clock_(clock), history_(history) {}

  // Who watches jobs, and what their ranks are busy with.
  JobFeed& jobs() { return jobs_; }
  const JobFeed& jobs() const { return jobs_; }
  // What ranks do now.
  RankBoard& ranks() { return ranks_; }
  const RankBoard& ranks() const { return ranks_; }
  // Takes the job as it is on disk now. A final state ends its streams.
  void PublishJob(const v1::Job& job);

  // --- Metrics.
  // The job's newest steps in memory; begun where there were none.
  StepFeed& StepsOf(const v1::Job& job);
  // nullptr: no step has come, or the job ended long ago.
  const StepFeed* FindSteps(const std::string& uid) const;
  // Takes a step as rank 0 reports it into the history and to those who follow. True where it is
  // newer than the last one that the job knows.
  bool AddStep(const v1::Job& job, const v1::StepRecord& step);
  void AddEval(const v1::Job& job, const v1::EvalRecord& eval);
  // The job's ranks have told which run they train in its epoch, and from which step they go on.
  void AddRun(const v1::Job& job);
  // Offers the steps of a report that was taken before to the history, which drops what it has.
  void KeepSteps(const v1::Job& job, const v1::StepsReport& report);
  // Keeps the steps of an orphaned job, for the time when it is adopted.
  void KeepOrphanSteps(const v1::StepsReport& report);
  const History* history() const { return history_; }
  // Whether all steps so far are on disk, so that workers may be told so.
  bool StepsAreSafe() const;
  // The job was deleted, and with it go the histories of these jobs: its own, unless another job
  // goes on with its run.
  void ForgetJob(const std::string& uid, std::span<const std::string> histories);
  // Gives first what the history has after `since_step`, then what is in memory, then what comes.
  // Steps closer together than `min_interval` are thinned.
  std::shared_ptr<MetricsSubscription> WatchMetrics(const v1::Job& job, int64_t since_step,
                                                    base::MonotonicTime::duration min_interval);
  void UnwatchMetrics(const std::string& uid, const MetricsSubscription* subscription);

  // --- Logs, which are read from the nodes where the ranks run or ran. The query names ranks that
  // exist.
  struct LogQuery {
    const v1::Job& job;
    std::span<const int> ranks;
    int lines;
    bool follow;
    std::string trace = {};  // LogRequest.trace: that of rank 0
    bool output = false;     // LogRequest.output: that of rank 0
    int64_t offset = 0;      // of the output
  };
  std::shared_ptr<LogSubscription> TailLogs(const LogQuery& query);
  void UntailLogs(const LogSubscription* subscription);
  void OnLogReply(const std::string& node, const v1::LogReply& reply);
  void OnNodeGone(const std::string& node);

  // Drops the metrics of jobs that ended a while ago (T2).
  void Tick();
  void CloseAll(const Status& status);
  size_t num_log_requests() const { return log_requests_.size(); }
  // The numbers of open streams, and of items that their readers were too slow for.
  size_t num_metrics_readers() const;
  int64_t num_dropped() const { return dropped_; }
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
  MetricsSubscription::Backlog Past(const v1::Job& job, int64_t since_step, int64_t before) const;
  void CloseIfDone(const std::shared_ptr<LogSubscription>& subscription);

  WorkerHub* hub_;
  const base::Clock* clock_;
  History* history_;
  std::atomic<int64_t> dropped_{0};
  JobFeed jobs_{&dropped_};
  RankBoard ranks_{clock_};
  std::map<std::string, JobSteps> steps_;
  int64_t next_log_request_ = 1;
  std::map<int64_t, LogRequest> log_requests_;
};

}  // namespace mt::daemon
