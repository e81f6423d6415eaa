// What users ask for: the calls of api.proto without gRPC. Each returns its answer as of now; the
// caller sends it after the next commit (Ledger::AfterCommit). Errors carry a stable reason
// (common/rpc/reason.h). Not thread-safe (the core's thread).
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "daemon/core/feeds.h"
#include "daemon/core/ledger.h"

namespace megatrain::v1 {
class CancelRequest;
class GetJobRequest;
class GetOperationRequest;
class JobRef;
class ListJobsRequest;
class ListJobsResponse;
class ListNodesResponse;
class ListOperationsRequest;
class ListOperationsResponse;
class StreamMetricsRequest;
class SubmitRequest;
class SubmitResponse;
class TailLogsRequest;
class ValidateRequest;
class ValidateResponse;
class WaitOperationRequest;
}  // namespace megatrain::v1

namespace mt::daemon {

class JobKeeper;
class LeaseTable;
class Placer;

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
    const base::Clock* clock;
  };
  explicit Api(const Parts& parts) : parts_(parts) {}

  // Pure: needs no core, may be called on any thread.
  static void Validate(const v1::ValidateRequest& request, v1::ValidateResponse* response);

  Status Submit(const v1::SubmitRequest& request, std::string_view actor,
                v1::SubmitResponse* response);
  Status GetJob(const v1::GetJobRequest& request, v1::Job* response);
  Status ListJobs(const v1::ListJobsRequest& request, v1::ListJobsResponse* response);
  Status Cancel(const v1::CancelRequest& request, std::string_view actor, v1::Operation* response);
  StatusOr<Followed<JobSubscription>> WatchJob(const v1::GetJobRequest& request);
  StatusOr<Followed<MetricsSubscription>> WatchMetrics(const v1::StreamMetricsRequest& request);
  StatusOr<Followed<LogSubscription>> TailLogs(const v1::TailLogsRequest& request);

  Status GetOperation(const v1::GetOperationRequest& request, v1::Operation* response);
  Status ListOperations(const v1::ListOperationsRequest& request,
                        v1::ListOperationsResponse* response);
  // Calls `answer` once, after a commit: when the operation is done, or the time is over, or the
  // coordinator ends.
  using OperationAnswer = std::function<void(const Status&, const v1::Operation*)>;
  void WaitOperation(const v1::WaitOperationRequest& request, OperationAnswer answer);

  void ListNodes(v1::ListNodesResponse* response);

  // Answers waiting calls whose operation is done or whose time is over.
  void AnswerWaiters();
  void CloseWaiters(const Status& status);

 private:
  StatusOr<v1::StoredJob*> Find(const v1::JobRef& ref);
  Status UnknownJob(std::string_view job_namespace, std::string_view name);
  Status Repeated(const v1::StoredRequest& before, std::string_view kind,
                  std::string_view digest) const;
  void RememberRequest(std::string_view id, std::string_view kind, std::string_view target,
                       std::string_view digest);

  struct Waiter {
    std::string operation;
    base::MonotonicTime deadline;
    OperationAnswer answer;
  };
  Parts parts_;
  std::list<Waiter> waiters_;
};

}  // namespace mt::daemon
