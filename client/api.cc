#include "client/api.h"

#include <cstdlib>
#include <unistd.h>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "common/rpc/channel.h"
#include "common/rpc/control_numbers.h"
#include "common/rpc/grpc_status.h"
#include "megatrain/v1/api.grpc.pb.h"

namespace mt::client {
namespace {

// Who asks: shown in events and operations.
std::string Actor() {
  const char* user = std::getenv("USER");
  char host[256] = "";
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return fmt::format("{}@{}", user == nullptr ? "uid" + std::to_string(::getuid()) : user, host);
}

void Prepare(grpc::ClientContext* context) { context->AddMetadata(rpc::kActorKey, Actor()); }

}  // namespace

void StreamStopper::Stop() {
  base::MutexLock lock(&mu_);
  stopped_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

bool StreamStopper::stopped() const {
  base::MutexLock lock(&mu_);
  return stopped_;
}

void StreamStopper::Attach(grpc::ClientContext* context) {
  base::MutexLock lock(&mu_);
  context_ = context;
  if (stopped_) context->TryCancel();
}

void StreamStopper::Detach() {
  base::MutexLock lock(&mu_);
  context_ = nullptr;
}

StatusOr<std::unique_ptr<Api>> Api::Connect(const rpc::Endpoint& endpoint,
                                            std::chrono::milliseconds request_timeout) {
  auto channel = rpc::MakeChannel(endpoint);
  RETURN_IF_ERROR(rpc::WaitConnected(*channel, endpoint, "coordinator", rpc::kClientDial));
  return std::unique_ptr<Api>(new Api(std::move(channel), request_timeout));
}

template <class Response, class Call>
StatusOr<Response> Api::Unary(std::chrono::milliseconds timeout, Call call) const {
  grpc::ClientContext context;
  Prepare(&context);
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Response response;
  const grpc::Status status = call(&context, &response);
  if (!status.ok()) return rpc::FromGrpc(status, context);
  return response;
}

template <class Message, class Open>
Status Api::Stream(StreamStopper* stopper, const std::function<bool(const Message&)>& on_message,
                   Open open) const {
  grpc::ClientContext context;
  Prepare(&context);
  stopper->Attach(&context);
  auto reader = open(&context);
  Message message;
  bool wanted = true;
  while (wanted && reader->Read(&message)) wanted = on_message(message);
  if (!wanted) context.TryCancel();
  const grpc::Status status = reader->Finish();
  stopper->Detach();
  return wanted ? rpc::FromGrpc(status, context) : OkStatus();
}

StatusOr<v1::SubmitResponse> Api::Submit(const v1::SubmitRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::SubmitResponse>(timeout_,
                                   [&](auto* c, auto* r) { return stub->Submit(c, request, r); });
}

StatusOr<v1::Job> Api::GetJob(const v1::GetJobRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Job>(timeout_, [&](auto* c, auto* r) { return stub->Get(c, request, r); });
}

StatusOr<v1::ListJobsResponse> Api::ListJobs(const v1::ListJobsRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::ListJobsResponse>(timeout_,
                                     [&](auto* c, auto* r) { return stub->List(c, request, r); });
}

StatusOr<v1::Operation> Api::Cancel(const v1::CancelRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Operation>(timeout_,
                              [&](auto* c, auto* r) { return stub->Cancel(c, request, r); });
}

StatusOr<v1::Operation> Api::WaitOperation(const v1::WaitOperationRequest& request) const {
  const auto stub = v1::Operations::NewStub(channel_);
  const auto limit = std::chrono::milliseconds(request.timeout_ms()) + timeout_;
  return Unary<v1::Operation>(limit, [&](auto* c, auto* r) { return stub->Wait(c, request, r); });
}

StatusOr<v1::ListNodesResponse> Api::ListNodes() const {
  const auto stub = v1::Nodes::NewStub(channel_);
  return Unary<v1::ListNodesResponse>(
      timeout_, [&](auto* c, auto* r) { return stub->List(c, v1::ListNodesRequest(), r); });
}

Status Api::Watch(const v1::GetJobRequest& request, StreamStopper* stopper,
                  const std::function<bool(const v1::Job&)>& on_message) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Stream<v1::Job>(stopper, on_message, [&](auto* c) { return stub->Watch(c, request); });
}

Status Api::StreamMetrics(const v1::StreamMetricsRequest& request, StreamStopper* stopper,
                          const std::function<bool(const v1::MetricsChunk&)>& on_message) const {
  const auto stub = v1::JobTelemetry::NewStub(channel_);
  return Stream<v1::MetricsChunk>(stopper, on_message,
                                  [&](auto* c) { return stub->StreamMetrics(c, request); });
}

Status Api::TailLogs(const v1::TailLogsRequest& request, StreamStopper* stopper,
                     const std::function<bool(const v1::LogChunk&)>& on_message) const {
  const auto stub = v1::JobTelemetry::NewStub(channel_);
  return Stream<v1::LogChunk>(stopper, on_message,
                              [&](auto* c) { return stub->TailLogs(c, request); });
}

}  // namespace mt::client
