// The coordinator's API as plain blocking calls; the only part of mtctl that knows gRPC. Every
// unary call has a deadline; a failed call returns the server's status with its reason
// (common/rpc/reason.h). Unary calls whose connection breaks are repeated unchanged until their
// deadline: reads are harmless, and verbs carry a request_id by which the server recognises a
// repeat. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/control/numbers.h"
#include "common/rpc/endpoint.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace megatrain::v1 {
class AdoptRequest;
class CancelRequest;
class DeclareDeadRequest;
class DecodeRequest;
class DeleteJobRequest;
class EventsChunk;
class GetJobRequest;
class GetOperationRequest;
class History;
class HoldOutputRequest;
class HoldOutputResponse;
class Job;
class KillOrphanRequest;
class KillOrphanResponse;
class KillRequest;
class ListCheckpointsRequest;
class ListCheckpointsResponse;
class ListJobsRequest;
class ListJobsResponse;
class ListNodesResponse;
class ListOperationsRequest;
class ListOperationsResponse;
class ListOrphansResponse;
class LogChunk;
class MetricsChunk;
class Node;
class Operation;
class PauseRequest;
class QueryHistoryRequest;
class ReadmitRequest;
class ReadRanksRequest;
class ReadRanksResponse;
class ResumeRequest;
class ServerInfo;
class StreamMetricsRequest;
class SubmitRequest;
class SubmitResponse;
class ProfileRequest;
class ReadOutputRequest;
class ReadTraceRequest;
class TailLogsRequest;
class TriggerCheckpointRequest;
class UpdateJobRequest;
class WaitOperationRequest;
class WatchEventsRequest;
class WhoHoldsRequest;
class WhoHoldsResponse;
}  // namespace megatrain::v1

namespace mt::client {

namespace v1 = megatrain::v1;

class Api;

// Ends a stream or a WaitOperation from another thread. Thread-safe; serves one call at a time.
class StreamStopper {
 public:
  // Ends the call that runs with this object, and every later one, with kCancelled.
  void Stop();
  bool stopped() const;

 private:
  friend class AdminApi;
  friend class Api;
  void Attach(grpc::ClientContext* context);
  void Detach();

  mutable base::Mutex mu_;
  grpc::ClientContext* context_ GUARDED_BY(mu_) = nullptr;
  bool stopped_ GUARDED_BY(mu_) = false;
};

// The calls of operators on nodes, over a connection that outlives it.
class NodeCalls {
 public:
  StatusOr<v1::Node> DeclareDead(const v1::DeclareDeadRequest& request) const;
  StatusOr<v1::Node> Readmit(const v1::ReadmitRequest& request) const;

 private:
  friend class Api;
  explicit NodeCalls(const Api* api) : api_(api) {}

  const Api* api_;
};
// What becomes of the texts of answers: cleaned for a terminal (client/output/clean_message.h), or
// left as they came, for programs.
enum class Texts { kCleaned, kAsTheyCame };

// A connection to one coordinator. It reconnects by itself; calls fail with kUnavailable meanwhile.
class Api {
 public:
  // Blocks until connected, at most for `dial`; kUnavailable names the address that did not
  // answer. `request_timeout` is the deadline of each unary call: kDeadlineExceeded after it.
  static StatusOr<std::unique_ptr<Api>> Connect(
      const rpc::Endpoint& endpoint, std::chrono::milliseconds request_timeout,
      Texts texts = Texts::kCleaned, std::chrono::milliseconds dial = control::kClientDial);

  // Verbs on jobs. Those that take time return an Operation, which WaitOperation follows.
  StatusOr<v1::SubmitResponse> Submit(const v1::SubmitRequest& request) const;
  // `stopper` (may be null) ends the call with kCancelled.
  StatusOr<v1::Job> GetJob(const v1::GetJobRequest& request,
                           StreamStopper* stopper = nullptr) const;
  StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request) const;
  StatusOr<v1::Job> Update(const v1::UpdateJobRequest& request) const;
  StatusOr<v1::Operation> Pause(const v1::PauseRequest& request) const;
  StatusOr<v1::Operation> Resume(const v1::ResumeRequest& request) const;
  StatusOr<v1::Operation> Cancel(const v1::CancelRequest& request) const;
  StatusOr<v1::Operation> Kill(const v1::KillRequest& request) const;
  StatusOr<v1::Operation> Delete(const v1::DeleteJobRequest& request) const;

  // Checkpoints of a job: save one now, list those that exist.
  StatusOr<v1::Operation> TriggerCheckpoint(const v1::TriggerCheckpointRequest& request) const;
  StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(
      const v1::ListCheckpointsRequest& request) const;

  // Operations: one by name, or those of a job or namespace.
  StatusOr<v1::Operation> GetOperation(const v1::GetOperationRequest& request) const;
  StatusOr<v1::ListOperationsResponse> ListOperations(
      const v1::ListOperationsRequest& request) const;
  // Blocks until the operation is done or request.timeout_ms is over, and returns it as it is then;
  // `stopper` ends the call earlier with kCancelled.
  StatusOr<v1::Operation> WaitOperation(const v1::WaitOperationRequest& request,
                                        StreamStopper* stopper) const;

  // What operators do to nodes.
  NodeCalls nodes() const { return NodeCalls(this); }

  // Nodes, the server's version and flags, and the stored history of a job's steps.
  StatusOr<v1::ListNodesResponse> ListNodes() const;
  StatusOr<v1::ServerInfo> GetInfo() const;
  StatusOr<v1::History> QueryHistory(const v1::QueryHistoryRequest& request) const;

  // Streams call `on_message` on the calling thread for each message, until it returns false or the
  // stream ends (both OK), fails, or is stopped (kCancelled). They have no deadline.
  Status Watch(const v1::GetJobRequest& request, StreamStopper* stopper,
               const std::function<bool(const v1::Job&)>& on_message) const;
  Status StreamMetrics(const v1::StreamMetricsRequest& request, StreamStopper* stopper,
                       const std::function<bool(const v1::MetricsChunk&)>& on_message) const;
  Status WatchEvents(const v1::WatchEventsRequest& request, StreamStopper* stopper,
                     const std::function<bool(const v1::EventsChunk&)>& on_message) const;
  Status TailLogs(const v1::TailLogsRequest& request, StreamStopper* stopper,
                  const std::function<bool(const v1::LogChunk&)>& on_message) const;

 private:
  friend class OperatorApi;
  friend class NodeCalls;
  friend class OutputsApi;
  friend class OrphansApi;
  friend class ProfilesApi;
  friend class ReadingsApi;
  Api(std::shared_ptr<grpc::Channel> channel, std::chrono::milliseconds timeout, Texts texts)
      : channel_(std::move(channel)), timeout_(timeout), texts_(texts) {}
  template <class Response, class Call>
  StatusOr<Response> Unary(std::chrono::milliseconds timeout, StreamStopper* stopper,
                           Call call) const;
  template <class Message, class Open>
  Status Stream(StreamStopper* stopper, const std::function<bool(const Message&)>& on_message,
                Open open) const;

  std::shared_ptr<grpc::Channel> channel_;
  std::chrono::milliseconds timeout_;
  Texts texts_;
};

// The calls on ranks that the coordinator does not know to be closed; a view of a connection, which
// outlives it.
class OrphansApi {
 public:
  explicit OrphansApi(const Api& api) : api_(api) {}

  StatusOr<v1::ListOrphansResponse> List() const;
  StatusOr<v1::KillOrphanResponse> Kill(const v1::KillOrphanRequest& request) const;
  StatusOr<v1::Job> Adopt(const v1::AdoptRequest& request) const;

 private:
  const Api& api_;
};

// The calls on traces of steps; a view of a connection, which outlives it.
class ProfilesApi {
 public:
  explicit ProfilesApi(const Api& api) : api_(api) {}

  StatusOr<v1::Operation> Begin(const v1::ProfileRequest& request) const;
  // As the streams of Api.
  Status ReadTrace(const v1::ReadTraceRequest& request, StreamStopper* stopper,
                   const std::function<bool(const v1::LogChunk&)>& on_message) const;

 private:
  const Api& api_;
};

// The calls on what jobs write: those of kinds generate and eval, and others that are asked to; a
// view of a connection, which outlives it.
class OutputsApi {
 public:
  explicit OutputsApi(const Api& api) : api_(api) {}

  // As the streams of Api.
  Status Read(const v1::ReadOutputRequest& request, StreamStopper* stopper,
              const std::function<bool(const v1::LogChunk&)>& on_message) const;
  // Has the ranks of a running job write.
  StatusOr<v1::Operation> Decode(const v1::DecodeRequest& request) const;
  // Keeps a job alive that was submitted with `held`; `stopper` ends the call with kCancelled.
  StatusOr<v1::HoldOutputResponse> Hold(const v1::HoldOutputRequest& request,
                                        StreamStopper* stopper) const;
  // Whether a job would be placed at once, and who holds slots; `stopper` likewise.
  StatusOr<v1::WhoHoldsResponse> WhoHolds(const v1::WhoHoldsRequest& request,
                                          StreamStopper* stopper) const;

 private:
  const Api& api_;
};

// The calls on what ranks do now; a view of a connection, which outlives it.
class ReadingsApi {
 public:
  explicit ReadingsApi(const Api& api) : api_(api) {}

  StatusOr<v1::ReadRanksResponse> ReadRanks(const v1::ReadRanksRequest& request) const;

 private:
  const Api& api_;
};

}  // namespace mt::client
