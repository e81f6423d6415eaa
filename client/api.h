// The coordinator's API as plain blocking calls: the only place of mtctl that knows gRPC. Every
// call has a deadline; a failed one returns the server's status with its reason. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace megatrain::v1 {
class CancelRequest;
class GetJobRequest;
class Job;
class ListJobsRequest;
class ListJobsResponse;
class ListNodesResponse;
class LogChunk;
class MetricsChunk;
class Operation;
class StreamMetricsRequest;
class SubmitRequest;
class SubmitResponse;
class TailLogsRequest;
class WaitOperationRequest;
}  // namespace megatrain::v1

namespace mt::client {

namespace v1 = megatrain::v1;

// Ends a stream from another thread.
class StreamStopper {
 public:
  // Every stream that runs with this object now or later ends with kCancelled.
  void Stop();
  bool stopped() const;

 private:
  friend class Api;
  void Attach(grpc::ClientContext* context);
  void Detach();

  mutable base::Mutex mu_;
  grpc::ClientContext* context_ GUARDED_BY(mu_) = nullptr;
  bool stopped_ GUARDED_BY(mu_) = false;
};

class Api {
 public:
  // Waits until connected; kUnavailable says where nobody answered and what to do.
  static StatusOr<std::unique_ptr<Api>> Connect(const rpc::Endpoint& endpoint,
                                                std::chrono::milliseconds request_timeout);

  StatusOr<v1::SubmitResponse> Submit(const v1::SubmitRequest& request) const;
  StatusOr<v1::Job> GetJob(const v1::GetJobRequest& request) const;
  StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request) const;
  StatusOr<v1::Operation> Cancel(const v1::CancelRequest& request) const;
  StatusOr<v1::Operation> WaitOperation(const v1::WaitOperationRequest& request) const;
  StatusOr<v1::ListNodesResponse> ListNodes() const;

  // Streams call `on_message` for each message until it returns false, the stream ends (OK) or
  // fails.
  Status Watch(const v1::GetJobRequest& request, StreamStopper* stopper,
               const std::function<bool(const v1::Job&)>& on_message) const;
  Status StreamMetrics(const v1::StreamMetricsRequest& request, StreamStopper* stopper,
                       const std::function<bool(const v1::MetricsChunk&)>& on_message) const;
  Status TailLogs(const v1::TailLogsRequest& request, StreamStopper* stopper,
                  const std::function<bool(const v1::LogChunk&)>& on_message) const;

 private:
  Api(std::shared_ptr<grpc::Channel> channel, std::chrono::milliseconds timeout)
      : channel_(std::move(channel)), timeout_(timeout) {}
  template <class Response, class Call>
  StatusOr<Response> Unary(std::chrono::milliseconds timeout, Call call) const;
  template <class Message, class Open>
  Status Stream(StreamStopper* stopper, const std::function<bool(const Message&)>& on_message,
                Open open) const;

  std::shared_ptr<grpc::Channel> channel_;
  std::chrono::milliseconds timeout_;
};

}  // namespace mt::client
