// What readers follow of jobs: states, metrics, logs, events; and the history. Errors carry a
// stable reason (common/rpc/reason.h). Not thread-safe (the core's thread), except the
// subscriptions.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/feeds/event_feed.h"
#include "daemon/feeds/feeds.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class GetJobRequest;
class History;
class QueryHistoryRequest;
class ReadOutputRequest;
class ReadRanksRequest;
class ReadRanksResponse;
class ReadTraceRequest;
class StreamMetricsRequest;
class TailLogsRequest;
class WatchEventsRequest;
}  // namespace megatrain::v1

namespace mt::daemon {

// A stream and the job that it follows.
template <class S>
struct Followed {
  std::string job_uid;  // empty: all jobs
  std::shared_ptr<S> subscription;
};

class StreamsApi {
 public:
  // All outlive it.
  StreamsApi(Ledger* ledger, Feeds* feeds, EventFeed* events)
      : ledger_(ledger), feeds_(feeds), events_(events) {}

  StatusOr<Followed<JobSubscription>> WatchJob(const v1::GetJobRequest& request);
  StatusOr<Followed<MetricsSubscription>> WatchMetrics(const v1::StreamMetricsRequest& request);
  StatusOr<Followed<LogSubscription>> TailLogs(const v1::TailLogsRequest& request);
  // The trace that an operation has made, from the node of rank 0.
  StatusOr<Followed<LogSubscription>> ReadTrace(const v1::ReadTraceRequest& request);
  // What a reader (spec::JobKind::reads) has written, from the node of its rank.
  StatusOr<Followed<LogSubscription>> ReadOutput(const v1::ReadOutputRequest& request);
  StatusOr<Followed<EventSubscription>> WatchEvents(const v1::WatchEventsRequest& request);
  // What the ranks of one job, or of all jobs, do now. kNotFound: there is no such job.
  Status ReadRanks(const v1::ReadRanksRequest& request, v1::ReadRanksResponse* response) const;
  // Reads the disk: run it on another thread, while the history lives.
  using HistoryAnswer = std::function<void(v1::History* out)>;
  // Checked and prepared here; nothing of the disk is read before the answer is run.
  StatusOr<HistoryAnswer> QueryHistory(const v1::QueryHistoryRequest& request);

 private:
  Ledger* ledger_;
  Feeds* feeds_;
  EventFeed* events_;
};

}  // namespace mt::daemon
