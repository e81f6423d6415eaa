// Two templates carry all calls: Unary with its retries and deadline, and Stream with its stopper.
// The rest of the file binds them to the generated stubs.
#include "client/session/api.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <unistd.h>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "client/output/clean_message.h"
#include "client/session/dial.h"
#include "client/session/operator_api.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "megatrain/v1/api.grpc.pb.h"

namespace mt::client {
namespace {

using std::chrono::milliseconds;

// First and longest pause between repeats of a call whose connection broke.
constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{500};

// The user's name and host, which events and operations show.
std::string Actor() {
  const char* user = std::getenv("USER");
  char host[256] = "";
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return fmt::format("{}@{}", user == nullptr ? "uid" + std::to_string(::getuid()) : user, host);
}

void Prepare(grpc::ClientContext* context) { context->AddMetadata(rpc::kActorKey, Actor()); }

// A server that lacks the call answers UNIMPLEMENTED with an empty message.
Status Explained(const Status& status) {
  if (!absl::IsUnimplemented(status)) return status;
  return base::Error(absl::StatusCode::kUnimplemented,
                     "the coordinator does not know this call: is it of an older version (mtctl "
                     "version)?");
}

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
                                            std::chrono::milliseconds request_timeout, Texts texts,
                                            std::chrono::milliseconds dial) {
  auto channel = rpc::MakeChannel(endpoint);
  RETURN_IF_ERROR(Dial(*channel, endpoint, {.limit = dial}));
  return std::unique_ptr<Api>(new Api(std::move(channel), request_timeout, texts));
}

template <class Response, class Call>
StatusOr<Response> Api::Unary(milliseconds timeout, StreamStopper* stopper, Call call) const {
  const auto until = std::chrono::system_clock::now() + timeout;
  Status broken;  // failure of the previous attempt
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(until);
    // The first attempt fails at once where no server listens; a repeat waits for the connection.
    context.set_wait_for_ready(!broken.ok());
    if (stopper != nullptr) stopper->Attach(&context);
    Response response;
    const grpc::Status answer = call(&context, &response);
    if (stopper != nullptr) stopper->Detach();
    if (answer.ok()) {
      if (texts_ == Texts::kCleaned) CleanMessage(&response);
      return response;
    }
    const Status failed = rpc::FromGrpc(answer, context);
    if (absl::IsDeadlineExceeded(failed)) {
      if (!broken.ok()) return broken;
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "the coordinator did not answer within {:g} s (--request-timeout)",
                         static_cast<double>(timeout.count()) / 1e3);
    }
    if (!absl::IsUnavailable(failed)) return Explained(failed);
    broken = failed;
    if (std::chrono::system_clock::now() + pause >= until) return broken;
    std::this_thread::sleep_for(pause);
  }
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
  while (wanted && reader->Read(&message)) {
    if (texts_ == Texts::kCleaned) CleanMessage(&message);
    wanted = on_message(message);
  }
  if (!wanted) context.TryCancel();
  const grpc::Status status = reader->Finish();
  stopper->Detach();
  return wanted ? Explained(rpc::FromGrpc(status, context)) : OkStatus();
}

StatusOr<v1::SubmitResponse> Api::Submit(const v1::SubmitRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::SubmitResponse>(timeout_, nullptr,
                                   [&](auto* c, auto* r) { return stub->Submit(c, request, r); });
}

StatusOr<v1::Job> Api::GetJob(const v1::GetJobRequest& request, StreamStopper* stopper) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Job>(timeout_, stopper,
                        [&](auto* c, auto* r) { return stub->Get(c, request, r); });
}

StatusOr<v1::ListJobsResponse> Api::ListJobs(const v1::ListJobsRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::ListJobsResponse>(timeout_, nullptr,
                                     [&](auto* c, auto* r) { return stub->List(c, request, r); });
}

StatusOr<v1::Job> Api::Update(const v1::UpdateJobRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Job>(timeout_, nullptr,
                        [&](auto* c, auto* r) { return stub->Update(c, request, r); });
}

StatusOr<v1::Operation> Api::Pause(const v1::PauseRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Operation>(timeout_, nullptr,
                              [&](auto* c, auto* r) { return stub->Pause(c, request, r); });
}

StatusOr<v1::Operation> Api::Resume(const v1::ResumeRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Operation>(timeout_, nullptr,
                              [&](auto* c, auto* r) { return stub->Resume(c, request, r); });
}

StatusOr<v1::Operation> Api::Cancel(const v1::CancelRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Operation>(timeout_, nullptr,
                              [&](auto* c, auto* r) { return stub->Cancel(c, request, r); });
}

StatusOr<v1::Operation> Api::Kill(const v1::KillRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Operation>(timeout_, nullptr,
                              [&](auto* c, auto* r) { return stub->Kill(c, request, r); });
}

StatusOr<v1::Operation> Api::Delete(const v1::DeleteJobRequest& request) const {
  const auto stub = v1::Jobs::NewStub(channel_);
  return Unary<v1::Operation>(timeout_, nullptr,
                              [&](auto* c, auto* r) { return stub->Delete(c, request, r); });
}

StatusOr<v1::Operation> Api::TriggerCheckpoint(const v1::TriggerCheckpointRequest& request) const {
  const auto stub = v1::Checkpoints::NewStub(channel_);
  return Unary<v1::Operation>(timeout_, nullptr,
                              [&](auto* c, auto* r) { return stub->Trigger(c, request, r); });
}

StatusOr<v1::ListCheckpointsResponse> Api::ListCheckpoints(
    const v1::ListCheckpointsRequest& request) const {
  const auto stub = v1::Checkpoints::NewStub(channel_);
  return Unary<v1::ListCheckpointsResponse>(
      timeout_, nullptr, [&](auto* c, auto* r) { return stub->List(c, request, r); });
}

StatusOr<v1::Operation> Api::GetOperation(const v1::GetOperationRequest& request) const {
  const auto stub = v1::Operations::NewStub(channel_);
  return Unary<v1::Operation>(timeout_, nullptr,
                              [&](auto* c, auto* r) { return stub->Get(c, request, r); });
}

StatusOr<v1::ListOperationsResponse> Api::ListOperations(
    const v1::ListOperationsRequest& request) const {
  const auto stub = v1::Operations::NewStub(channel_);
  return Unary<v1::ListOperationsResponse>(
      timeout_, nullptr, [&](auto* c, auto* r) { return stub->List(c, request, r); });
}

StatusOr<v1::Operation> Api::WaitOperation(const v1::WaitOperationRequest& request,
                                           StreamStopper* stopper) const {
  const auto stub = v1::Operations::NewStub(channel_);
  const auto limit = milliseconds(request.timeout_ms()) + timeout_;
  return Unary<v1::Operation>(limit, stopper,
                              [&](auto* c, auto* r) { return stub->Wait(c, request, r); });
}

StatusOr<v1::ListNodesResponse> Api::ListNodes() const {
  const auto stub = v1::Nodes::NewStub(channel_);
  return Unary<v1::ListNodesResponse>(timeout_, nullptr, [&](auto* c, auto* r) {
    return stub->List(c, v1::ListNodesRequest(), r);
  });
}

StatusOr<v1::Node> NodeCalls::DeclareDead(const v1::DeclareDeadRequest& request) const {
  const auto stub = v1::Nodes::NewStub(api_->channel_);
  return api_->Unary<v1::Node>(api_->timeout_, nullptr,
                               [&](auto* c, auto* r) { return stub->DeclareDead(c, request, r); });
}

StatusOr<v1::Node> NodeCalls::Readmit(const v1::ReadmitRequest& request) const {
  const auto stub = v1::Nodes::NewStub(api_->channel_);
  return api_->Unary<v1::Node>(api_->timeout_, nullptr,
                               [&](auto* c, auto* r) { return stub->Readmit(c, request, r); });
}

Status OperatorApi::DeleteNode(const v1::DeleteNodeRequest& request) const {
  const auto stub = v1::Nodes::NewStub(api_->channel_);
  return api_
      ->Unary<v1::DeleteNodeResponse>(api_->timeout_, nullptr,
                                      [&](auto* c, auto* r) { return stub->Delete(c, request, r); })
      .status();
}

StatusOr<v1::ServerInfo> Api::GetInfo() const {
  const auto stub = v1::Admin::NewStub(channel_);
  return Unary<v1::ServerInfo>(timeout_, nullptr, [&](auto* c, auto* r) {
    return stub->GetInfo(c, v1::GetInfoRequest(), r);
  });
}

StatusOr<v1::ServerInfo> OperatorApi::DeclareRestore(
    const v1::DeclareRestoreRequest& request) const {
  const auto stub = v1::Admin::NewStub(api_->channel_);
  return api_->Unary<v1::ServerInfo>(api_->timeout_, nullptr, [&](auto* c, auto* r) {
    return stub->DeclareRestore(c, request, r);
  });
}

StatusOr<v1::History> Api::QueryHistory(const v1::QueryHistoryRequest& request) const {
  const auto stub = v1::JobTelemetry::NewStub(channel_);
  return Unary<v1::History>(timeout_, nullptr,
                            [&](auto* c, auto* r) { return stub->QueryHistory(c, request, r); });
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

Status Api::WatchEvents(const v1::WatchEventsRequest& request, StreamStopper* stopper,
                        const std::function<bool(const v1::EventsChunk&)>& on_message) const {
  const auto stub = v1::JobTelemetry::NewStub(channel_);
  return Stream<v1::EventsChunk>(stopper, on_message,
                                 [&](auto* c) { return stub->WatchEvents(c, request); });
}

Status Api::TailLogs(const v1::TailLogsRequest& request, StreamStopper* stopper,
                     const std::function<bool(const v1::LogChunk&)>& on_message) const {
  const auto stub = v1::JobTelemetry::NewStub(channel_);
  return Stream<v1::LogChunk>(stopper, on_message,
                              [&](auto* c) { return stub->TailLogs(c, request); });
}

StatusOr<v1::Operation> ProfilesApi::Begin(const v1::ProfileRequest& request) const {
  const auto stub = v1::Jobs::NewStub(api_.channel_);
  return api_.Unary<v1::Operation>(api_.timeout_, nullptr,
                                   [&](auto* c, auto* r) { return stub->Profile(c, request, r); });
}

Status ProfilesApi::ReadTrace(const v1::ReadTraceRequest& request, StreamStopper* stopper,
                              const std::function<bool(const v1::LogChunk&)>& on_message) const {
  const auto stub = v1::JobTelemetry::NewStub(api_.channel_);
  return api_.Stream<v1::LogChunk>(stopper, on_message,
                                   [&](auto* c) { return stub->ReadTrace(c, request); });
}

Status OutputsApi::Read(const v1::ReadOutputRequest& request, StreamStopper* stopper,
                        const std::function<bool(const v1::LogChunk&)>& on_message) const {
  const auto stub = v1::JobTelemetry::NewStub(api_.channel_);
  return api_.Stream<v1::LogChunk>(stopper, on_message,
                                   [&](auto* c) { return stub->ReadOutput(c, request); });
}

StatusOr<v1::Operation> OutputsApi::Decode(const v1::DecodeRequest& request) const {
  const auto stub = v1::Jobs::NewStub(api_.channel_);
  return api_.Unary<v1::Operation>(api_.timeout_, nullptr,
                                   [&](auto* c, auto* r) { return stub->Decode(c, request, r); });
}

StatusOr<v1::HoldOutputResponse> OutputsApi::Hold(const v1::HoldOutputRequest& request,
                                                  StreamStopper* stopper) const {
  const auto stub = v1::Jobs::NewStub(api_.channel_);
  return api_.Unary<v1::HoldOutputResponse>(
      api_.timeout_, stopper, [&](auto* c, auto* r) { return stub->HoldOutput(c, request, r); });
}

StatusOr<v1::WhoHoldsResponse> OutputsApi::WhoHolds(const v1::WhoHoldsRequest& request,
                                                    StreamStopper* stopper) const {
  const auto stub = v1::Jobs::NewStub(api_.channel_);
  return api_.Unary<v1::WhoHoldsResponse>(
      api_.timeout_, stopper, [&](auto* c, auto* r) { return stub->WhoHolds(c, request, r); });
}

StatusOr<v1::ListOrphansResponse> OrphansApi::List() const {
  const auto stub = v1::Nodes::NewStub(api_.channel_);
  return api_.Unary<v1::ListOrphansResponse>(api_.timeout_, nullptr, [&](auto* c, auto* r) {
    return stub->ListOrphans(c, v1::ListOrphansRequest(), r);
  });
}

StatusOr<v1::KillOrphanResponse> OrphansApi::Kill(const v1::KillOrphanRequest& request) const {
  const auto stub = v1::Nodes::NewStub(api_.channel_);
  return api_.Unary<v1::KillOrphanResponse>(
      api_.timeout_, nullptr, [&](auto* c, auto* r) { return stub->KillOrphan(c, request, r); });
}

StatusOr<v1::Job> OrphansApi::Adopt(const v1::AdoptRequest& request) const {
  const auto stub = v1::Jobs::NewStub(api_.channel_);
  return api_.Unary<v1::Job>(api_.timeout_, nullptr,
                             [&](auto* c, auto* r) { return stub->Adopt(c, request, r); });
}

StatusOr<v1::ReadRanksResponse> ReadingsApi::ReadRanks(const v1::ReadRanksRequest& request) const {
  const auto stub = v1::JobTelemetry::NewStub(api_.channel_);
  return api_.Unary<v1::ReadRanksResponse>(
      api_.timeout_, nullptr, [&](auto* c, auto* r) { return stub->ReadRanks(c, request, r); });
}

}  // namespace mt::client
