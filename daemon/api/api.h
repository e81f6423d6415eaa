// What users ask for: the calls of api.proto without gRPC. Each returns its answer as of now; the
// caller sends it after the next commit (Ledger::AfterCommit). Errors carry a stable reason
// (common/rpc/reason.h). Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "daemon/feeds/event_feed.h"
#include "daemon/feeds/feeds.h"
#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"

namespace mt::spec {
struct FieldChange;
}

namespace megatrain::v1 {
class CancelRequest;
class DeclareDeadRequest;
class DeleteJobRequest;
class GetJobRequest;
class GetOperationRequest;
class History;
class JobRef;
class KillRequest;
class ListCheckpointsRequest;
class ListCheckpointsResponse;
class ListJobsRequest;
class ListJobsResponse;
class ListNodesResponse;
class ListOperationsRequest;
class ListOperationsResponse;
class Node;
class PauseRequest;
class ResumeRequest;
class QueryHistoryRequest;
class StreamMetricsRequest;
class SubmitRequest;
class SubmitResponse;
class TailLogsRequest;
class TriggerCheckpointRequest;
class UpdateJobRequest;
class ValidateRequest;
class ValidateResponse;
class WaitOperationRequest;
class WatchEventsRequest;
}  // namespace megatrain::v1

namespace mt::daemon {

class JobKeeper;
class LeaseTable;
class Placer;
class Sessions;

// A stream and the job that it follows.
template <class S>
struct Followed {
  std::string job_uid;
  std::shared_ptr<S> subscription;
};

class Api {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    LeaseTable* leases;
    JobKeeper* keeper;
    Placer* placer;
    Feeds* feeds;
    EventFeed* events;
    Sessions* sessions;
    const base::Clock* clock;
  };
  explicit Api(const Parts& parts) : parts_(parts) {}

  // Pure: needs no core, may be called on any thread.
  static void Validate(const v1::ValidateRequest& request, v1::ValidateResponse* response);

  Status Submit(const v1::SubmitRequest& request, std::string_view actor,
                v1::SubmitResponse* response);
  Status GetJob(const v1::GetJobRequest& request, v1::Job* response);
  Status ListJobs(const v1::ListJobsRequest& request, v1::ListJobsResponse* response);

  // --- Verbs; each is an Operation.
  Status Pause(const v1::PauseRequest& request, std::string_view actor, v1::Operation* response);
  Status Resume(const v1::ResumeRequest& request, std::string_view actor, v1::Operation* response);
  Status Cancel(const v1::CancelRequest& request, std::string_view actor, v1::Operation* response);
  Status Kill(const v1::KillRequest& request, std::string_view actor, v1::Operation* response);
  Status Delete(const v1::DeleteJobRequest& request, std::string_view actor,
                v1::Operation* response);
  Status TriggerCheckpoint(const v1::TriggerCheckpointRequest& request, std::string_view actor,
                           v1::Operation* response);
  Status ListCheckpoints(const v1::ListCheckpointsRequest& request,
                         v1::ListCheckpointsResponse* response);
  // Answers at once; ranks that run are told.
  Status Update(const v1::UpdateJobRequest& request, std::string_view actor, v1::Job* response);

  // --- Streams.
  StatusOr<Followed<JobSubscription>> WatchJob(const v1::GetJobRequest& request);
  StatusOr<Followed<MetricsSubscription>> WatchMetrics(const v1::StreamMetricsRequest& request);
  StatusOr<Followed<LogSubscription>> TailLogs(const v1::TailLogsRequest& request);
  // Reads the disk: run it on another thread, while the history lives.
  using HistoryAnswer = std::function<void(v1::History* out)>;
  StatusOr<HistoryAnswer> QueryHistory(const v1::QueryHistoryRequest& request);
  StatusOr<Followed<EventSubscription>> WatchEvents(const v1::WatchEventsRequest& request);

  Status GetOperation(const v1::GetOperationRequest& request, v1::Operation* response);
  Status ListOperations(const v1::ListOperationsRequest& request,
                        v1::ListOperationsResponse* response);
  // Calls `answer` once, after a commit: when the operation is done, or the time is over, or the
  // coordinator ends.
  using OperationAnswer = std::function<void(const Status&, const v1::Operation*)>;
  // The number is for CancelWait; 0: it was answered.
  int64_t WaitOperation(const v1::WaitOperationRequest& request, OperationAnswer answer);
  // The client has left: answers CANCELLED, if it was not answered.
  void CancelWait(int64_t id);
  size_t num_waiters() const { return waiters_.size(); }

  void ListNodes(v1::ListNodesResponse* response);
  Status DeclareDead(const v1::DeclareDeadRequest& request, std::string_view actor,
                     v1::Node* response);

  // Answers waiting calls whose operation is done or whose time is over.
  void AnswerWaiters();
  void CloseWaiters(const Status& status);

 private:
  StatusOr<v1::StoredJob*> Find(const v1::JobRef& ref);
  static Status CheckRequestId(const std::string& id);
  static void SetDeadline(v1::Job* job);
  template <class Request, class Call>
  Status Operate(const Request& request, std::string_view verb, std::string_view actor,
                 v1::Operation* response, const Call& call);
  Status CheckUpdate(const v1::UpdateJobRequest& request, const v1::Job& job) const;
  void TakeUpdate(v1::StoredJob& job, const std::vector<spec::FieldChange>& changes,
                  const Order& order);
  void ShowNode(const v1::StoredWorker& worker, v1::Node* node);
  Status UnknownJob(std::string_view job_namespace, std::string_view name);
  Status Repeated(const v1::StoredRequest& before, std::string_view kind,
                  std::string_view digest) const;
  void RememberRequest(std::string_view id, std::string_view kind, std::string_view target,
                       std::string_view digest);

  struct Waiter {
    int64_t id;
    std::string operation;
    base::MonotonicTime deadline;
    OperationAnswer answer;
  };
  Parts parts_;
  std::list<Waiter> waiters_;
  int64_t next_waiter_ = 1;
};

}  // namespace mt::daemon
