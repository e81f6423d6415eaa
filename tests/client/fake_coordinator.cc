// Synchronous gRPC services over one shared FakeState; verbs pass through DoVerb, which injects
// lost answers, hangs and refusals.
#include "tests/client/fake_coordinator.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "client/app.h"
#include "common/base/check.h"
#include "common/base/files.h"

namespace mt::client {
namespace {

using grpc::ServerContext;
using RpcStatus = grpc::Status;  // Status is ours

void WaitForClientToLeave(const ServerContext& context) {
  while (!context.IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// Where the test asks for that, until the client's other stream has been opened.
void AwaitMetricsStream(FakeState* state, const ServerContext& context) {
  for (bool waits = true; waits && !context.IsCancelled();) {
    {
      base::MutexLock lock(&state->mu);
      waits = state->watch_after_metrics && state->metrics_streams == 0;
    }
    if (waits) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

RpcStatus Unavailable() { return {grpc::StatusCode::UNAVAILABLE, "connection reset by the test"}; }

// Performs a verb: once per request id, whatever happens to the answer.
RpcStatus DoVerb(FakeState* state, const ServerContext& context, const std::string& verb,
                 const std::string& request_id, v1::Operation* out) {
  bool hang = false;
  {
    base::MutexLock lock(&state->mu);
    state->request_ids.push_back(request_id);
    if (!state->refuse.ok()) return state->refuse;
    v1::Operation& operation = state->operations[request_id];
    if (operation.name().empty()) {
      operation.set_name("operations/" + std::to_string(state->operations.size()));
      operation.set_verb(verb);
      operation.set_request_id(request_id);
      operation.set_job("default/tiny");
      operation.set_done(state->operation_done);
      if (state->complete) state->complete(&operation);
    }
    *out = operation;
    hang = state->hang;
    if (state->break_next > 0) {
      --state->break_next;
      return Unavailable();
    }
  }
  if (hang) WaitForClientToLeave(context);
  return RpcStatus::OK;
}

class FakeJobs final : public v1::Jobs::Service {
 public:
  explicit FakeJobs(FakeState* state) : state_(state) {}

  RpcStatus Submit(ServerContext*, const v1::SubmitRequest* request,
                   v1::SubmitResponse* response) override {
    base::MutexLock lock(&state_->mu);
    state_->request_ids.push_back(request->request_id());
    state_->restarts.push_back(request->restart());
    state_->submitted = *request;
    *response->mutable_job()->mutable_spec() = request->spec();
    response->mutable_job()->set_name(request->spec().name());
    response->mutable_job()->set_namespace_(request->spec().namespace_());
    response->mutable_job()->set_uid("0f8fad5b-d9cb-469f-a165-70867728950e");
    response->mutable_job()->set_state(v1::RUNNING);
    if (state_->break_next-- > 0) return Unavailable();
    return RpcStatus::OK;
  }
  RpcStatus Get(ServerContext*, const v1::GetJobRequest* request, v1::Job* job) override {
    base::MutexLock lock(&state_->mu);
    const v1::Job* newest = nullptr;
    for (const v1::Job& known : state_->jobs) {
      if (known.uid() != request->job().uid() && known.name() != request->job().name()) continue;
      if (newest == nullptr) newest = &known;
      if (request->job().with_run() && !known.has_last_step()) continue;
      *job = known;
      return RpcStatus::OK;
    }
    if (newest != nullptr) {
      *job = *newest;
      return RpcStatus::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, "no job '" + request->job().name() + "'"};
  }
  // Returns one job per page, so that paging is always exercised.
  RpcStatus List(ServerContext*, const v1::ListJobsRequest* request,
                 v1::ListJobsResponse* response) override {
    base::MutexLock lock(&state_->mu);
    const size_t at = request->page_token().empty() ? 0 : std::stoul(request->page_token());
    if (at == 0) ++state_->job_lists;
    if (at < state_->jobs.size()) *response->add_jobs() = state_->jobs[at];
    if (at + 1 < state_->jobs.size()) response->set_next_page_token(std::to_string(at + 1));
    return RpcStatus::OK;
  }
  RpcStatus Watch(ServerContext* context, const v1::GetJobRequest*,
                  grpc::ServerWriter<v1::Job>* writer) override {
    AwaitMetricsStream(state_, *context);
    std::vector<v1::Job> jobs;
    {
      base::MutexLock lock(&state_->mu);
      jobs = state_->watch;
    }
    for (const v1::Job& job : jobs) writer->Write(job);
    const bool ended = !jobs.empty() &&
                       (jobs.back().state() == v1::SUCCEEDED || jobs.back().state() == v1::FAILED);
    if (!ended) WaitForClientToLeave(*context);
    return RpcStatus::OK;
  }
  RpcStatus Update(ServerContext*, const v1::UpdateJobRequest* request, v1::Job* job) override {
    base::MutexLock lock(&state_->mu);
    state_->updated = *request;
    if (!request->etag().empty() && request->etag() != "e1")
      return {grpc::StatusCode::ABORTED, "etag is e1"};
    *job = state_->jobs.at(0);
    job->set_etag("e2");
    return RpcStatus::OK;
  }
  RpcStatus Pause(ServerContext* context, const v1::PauseRequest* request,
                  v1::Operation* out) override {
    {
      base::MutexLock lock(&state_->mu);
      state_->paused = *request;
    }
    return DoVerb(state_, *context, "pause", request->request_id(), out);
  }
  RpcStatus Resume(ServerContext* context, const v1::ResumeRequest* request,
                   v1::Operation* out) override {
    {
      base::MutexLock lock(&state_->mu);
      state_->resumed = *request;
    }
    return DoVerb(state_, *context, "resume", request->request_id(), out);
  }
  RpcStatus HoldOutput(ServerContext*, const v1::HoldOutputRequest* request,
                       v1::HoldOutputResponse* response) override {
    base::MutexLock lock(&state_->mu);
    state_->held.push_back(request->job().uid());
    response->set_held(true);
    return RpcStatus::OK;
  }
  RpcStatus WhoHolds(ServerContext*, const v1::WhoHoldsRequest*,
                     v1::WhoHoldsResponse* response) override {
    base::MutexLock lock(&state_->mu);
    response->set_starts(true);
    if (state_->who_holds.empty()) return RpcStatus::OK;
    *response = state_->who_holds.front();
    if (state_->who_holds.size() > 1) state_->who_holds.erase(state_->who_holds.begin());
    return RpcStatus::OK;
  }
  RpcStatus Cancel(ServerContext* context, const v1::CancelRequest* request,
                   v1::Operation* out) override {
    {
      base::MutexLock lock(&state_->mu);
      state_->cancelled = *request;
    }
    return DoVerb(state_, *context, "cancel", request->request_id(), out);
  }
  RpcStatus Kill(ServerContext* context, const v1::KillRequest* request,
                 v1::Operation* out) override {
    return DoVerb(state_, *context, "kill", request->request_id(), out);
  }
  RpcStatus Delete(ServerContext* context, const v1::DeleteJobRequest* request,
                   v1::Operation* out) override {
    return DoVerb(state_, *context, "delete", request->request_id(), out);
  }
  RpcStatus Profile(ServerContext* context, const v1::ProfileRequest* request,
                    v1::Operation* out) override {
    {
      base::MutexLock lock(&state_->mu);
      state_->profiled = *request;
    }
    return DoVerb(state_, *context, "profile", request->request_id(), out);
  }
  RpcStatus Decode(ServerContext* context, const v1::DecodeRequest* request,
                   v1::Operation* out) override {
    {
      base::MutexLock lock(&state_->mu);
      state_->decoded = *request;
    }
    return DoVerb(state_, *context, "decode", request->request_id(), out);
  }
  RpcStatus Adopt(ServerContext*, const v1::AdoptRequest* request, v1::Job* out) override {
    base::MutexLock lock(&state_->mu);
    if (!state_->refuse.ok()) return state_->refuse;
    state_->adopted = *request;
    out->set_name("tiny");
    out->set_uid("uid-1");
    out->add_ranks();
    return RpcStatus::OK;
  }

 private:
  FakeState* const state_;
};

class FakeCheckpoints final : public v1::Checkpoints::Service {
 public:
  explicit FakeCheckpoints(FakeState* state) : state_(state) {}
  RpcStatus Trigger(ServerContext* context, const v1::TriggerCheckpointRequest* request,
                    v1::Operation* out) override {
    {
      base::MutexLock lock(&state_->mu);
      state_->triggered = *request;
    }
    return DoVerb(state_, *context, "checkpoint", request->request_id(), out);
  }
  RpcStatus List(ServerContext*, const v1::ListCheckpointsRequest* request,
                 v1::ListCheckpointsResponse* response) override {
    base::MutexLock lock(&state_->mu);
    state_->listed = *request;
    *response = state_->checkpoints;
    return RpcStatus::OK;
  }

 private:
  FakeState* const state_;
};

class FakeOperations final : public v1::Operations::Service {
 public:
  explicit FakeOperations(FakeState* state) : state_(state) {}
  RpcStatus Get(ServerContext*, const v1::GetOperationRequest* request,
                v1::Operation* out) override {
    base::MutexLock lock(&state_->mu);
    for (const auto& [id, operation] : state_->operations) {
      if (operation.name() != request->name()) continue;
      *out = operation;
      return RpcStatus::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, "no " + request->name()};
  }
  RpcStatus List(ServerContext*, const v1::ListOperationsRequest*,
                 v1::ListOperationsResponse* response) override {
    base::MutexLock lock(&state_->mu);
    for (const auto& [id, operation] : state_->operations) *response->add_operations() = operation;
    return RpcStatus::OK;
  }
  RpcStatus Wait(ServerContext* context, const v1::WaitOperationRequest* request,
                 v1::Operation* out) override {
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(request->timeout_ms());
    for (;;) {
      v1::GetOperationRequest get;
      get.set_name(request->name());
      const RpcStatus status = Get(context, &get, out);
      const bool over = std::chrono::steady_clock::now() >= until || context->IsCancelled();
      if (!status.ok() || out->done() || over) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  FakeState* const state_;
};

class FakeNodes final : public v1::Nodes::Service {
 public:
  explicit FakeNodes(FakeState* state) : state_(state) {}
  RpcStatus List(ServerContext*, const v1::ListNodesRequest*,
                 v1::ListNodesResponse* response) override {
    base::MutexLock lock(&state_->mu);
    *response = state_->nodes;
    return RpcStatus::OK;
  }
  RpcStatus DeclareDead(ServerContext*, const v1::DeclareDeadRequest* request,
                        v1::Node* node) override {
    if (request->node() != "lost-node")
      return {grpc::StatusCode::FAILED_PRECONDITION, "node " + request->node() + " is heard"};
    node->set_name(request->node());
    node->set_state(v1::NODE_DEAD);
    return RpcStatus::OK;
  }
  RpcStatus Readmit(ServerContext*, const v1::ReadmitRequest* request, v1::Node* node) override {
    if (request->reason() != "new disk")
      return {grpc::StatusCode::FAILED_PRECONDITION, "node " + request->node() + " holds ranks"};
    node->set_name(request->node());
    return RpcStatus::OK;
  }
  RpcStatus ListOrphans(ServerContext*, const v1::ListOrphansRequest*,
                        v1::ListOrphansResponse* response) override {
    base::MutexLock lock(&state_->mu);
    *response = state_->orphans;
    return RpcStatus::OK;
  }
  RpcStatus KillOrphan(ServerContext*, const v1::KillOrphanRequest* request,
                       v1::KillOrphanResponse* response) override {
    base::MutexLock lock(&state_->mu);
    state_->killed = *request;
    response->set_ranks(2);
    return RpcStatus::OK;
  }

 private:
  FakeState* const state_;
};

class FakeAdmin final : public v1::Admin::Service {
 public:
  explicit FakeAdmin(FakeState* state) : state_(state) {}
  RpcStatus GetInfo(ServerContext*, const v1::GetInfoRequest*, v1::ServerInfo* info) override {
    base::MutexLock lock(&state_->mu);
    *info = state_->info;
    return RpcStatus::OK;
  }
  RpcStatus Backup(ServerContext*, const v1::BackupRequest*,
                   grpc::ServerWriter<v1::BackupChunk>* writer) override {
    base::MutexLock lock(&state_->mu);
    for (const std::string& bytes : state_->backup) {
      v1::BackupChunk chunk;
      chunk.set_data(bytes);
      writer->Write(chunk);
    }
    return state_->refuse;
  }

 private:
  FakeState* const state_;
};

class FakeTelemetry final : public v1::JobTelemetry::Service {
 public:
  explicit FakeTelemetry(FakeState* state) : state_(state) {}
  RpcStatus StreamMetrics(ServerContext* context, const v1::StreamMetricsRequest* request,
                          grpc::ServerWriter<v1::MetricsChunk>* writer) override {
    std::vector<v1::MetricsChunk> chunks;
    bool stall = false;
    {
      base::MutexLock lock(&state_->mu);
      state_->streamed = *request;
      ++state_->metrics_streams;
      chunks = state_->metrics;
      stall = state_->metrics_stall;
    }
    for (const v1::MetricsChunk& chunk : chunks) {
      if (chunk.steps_size() == 0 || chunk.steps(0).step() > request->since_step())
        writer->Write(chunk);
    }
    if (stall) WaitForClientToLeave(*context);
    return RpcStatus::OK;
  }
  RpcStatus ReadTrace(ServerContext*, const v1::ReadTraceRequest* request,
                      grpc::ServerWriter<v1::LogChunk>* writer) override {
    base::MutexLock lock(&state_->mu);
    EXPECT_TRUE(request->operation().starts_with("operations/")) << request->operation();
    for (const v1::LogChunk& chunk : state_->trace) writer->Write(chunk);
    return RpcStatus::OK;
  }
  RpcStatus ReadOutput(ServerContext*, const v1::ReadOutputRequest* request,
                       grpc::ServerWriter<v1::LogChunk>* writer) override {
    base::MutexLock lock(&state_->mu);
    state_->outputs_asked.push_back(*request);
    const size_t call = state_->outputs_asked.size() - 1;
    if (call < state_->outputs.size())
      for (const v1::LogChunk& chunk : state_->outputs[call]) writer->Write(chunk);
    if (state_->after_output) state_->after_output(state_);
    return RpcStatus::OK;
  }
  RpcStatus QueryHistory(ServerContext*, const v1::QueryHistoryRequest* request,
                         v1::History* history) override {
    base::MutexLock lock(&state_->mu);
    state_->asked = *request;
    *history = state_->answer_history ? state_->answer_history(*request) : state_->history;
    return RpcStatus::OK;
  }
  RpcStatus WatchEvents(ServerContext* context, const v1::WatchEventsRequest* request,
                        grpc::ServerWriter<v1::EventsChunk>* writer) override {
    std::vector<v1::Event> events;
    int break_after = 0;
    {
      base::MutexLock lock(&state_->mu);
      events = state_->events;
      if (state_->event_streams++ == 0) break_after = state_->break_event_stream_after;
    }
    int sent = 0;
    for (const v1::Event& event : events) {
      if (event.seq() < request->since_seq()) continue;
      v1::EventsChunk chunk;
      *chunk.add_events() = event;
      writer->Write(chunk);
      if (++sent == break_after) return Unavailable();
    }
    (void)context;
    return RpcStatus::OK;
  }

 private:
  FakeState* const state_;
};

bool HandlesCtrlC() {
  struct sigaction now {};
  return ::sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler != SIG_DFL;
}

}  // namespace

FakeCoordinator::FakeCoordinator() {
  // Hides this machine's own configuration from the test.
  ::setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  for (const char* name :
       {"MTCTL_COORDINATOR", "MTCTL_CONTEXT", "MTCTL_NAMESPACE", "MTCTL_OUTPUT", "MTCTL_COLOR",
        "MTCTL_TIME_FORMAT", "MTCTL_CONNECT_TIMEOUT", "MTCTL_REQUEST_TIMEOUT"}) {
    ::unsetenv(name);
  }
  services_.push_back(std::make_unique<FakeJobs>(&state_));
  services_.push_back(std::make_unique<FakeCheckpoints>(&state_));
  services_.push_back(std::make_unique<FakeOperations>(&state_));
  services_.push_back(std::make_unique<FakeNodes>(&state_));
  services_.push_back(std::make_unique<FakeAdmin>(&state_));
  services_.push_back(std::make_unique<FakeTelemetry>(&state_));
  rpc::Server::Config config;
  config.listen.port = 0;
  for (const auto& service : services_) config.services.push_back(service.get());
  auto server = rpc::Server::Start(config);
  CHECK(server.ok()) << base::Message(server.status());
  server_ = std::move(server).value();
}

FakeCoordinator::~FakeCoordinator() = default;

Ran Mtctl(const FakeCoordinator* server, std::vector<std::string> args) {
  args.insert(args.begin(), "mtctl");
  if (server != nullptr) {
    args.push_back("--coordinator");
    args.push_back(server->address());
  }
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Ran ran{.code = RunApp(static_cast<int>(argv.size()), argv.data())};
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

v1::Job MakeJob(const std::string& name, v1::JobState state) {
  v1::Job job;
  job.set_name(name);
  job.set_namespace_("default");
  job.set_uid("uid-of-" + name);
  job.set_state(state);
  job.set_slots(2);
  job.set_total_steps(100);
  job.set_failed_rank(-1);
  job.set_created_us(1'700'000'000'000'000);
  job.mutable_last_step()->set_step(40);
  job.mutable_last_step()->set_loss(2.5);
  job.mutable_last_step()->set_tokens_per_second(12345);
  return job;
}

void AwaitHandlerOfCtrlC() {
  while (!HandlesCtrlC()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void PressCtrlC(int after_ms) {
  AwaitHandlerOfCtrlC();
  std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
  ::kill(::getpid(), SIGINT);
}

void PressCtrlCAfter(const std::string& printed, int fd, int after_ms) {
  AwaitHandlerOfCtrlC();  // from then on what it prints goes to a file
  const std::string file = "/proc/self/fd/" + std::to_string(fd);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  // Where mtctl ends by itself, the file is no more its own.
  while (HandlesCtrlC() && base::ReadFile(file).value_or("").find(printed) == std::string::npos &&
         std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
  if (HandlesCtrlC()) ::kill(::getpid(), SIGINT);
}

}  // namespace mt::client
