// The coordinator over real sockets: one in this process, and the program itself, killed and
// started again.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <memory>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/control/numbers.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/version.h"
#include "daemon/service/coordinator.h"
#include "megatrain/v1/api.grpc.pb.h"
#include "megatrain/v1/worker.grpc.pb.h"
#include "tests/daemon/core/core_fixture.h"
#include "tests/daemon/store/new_store.h"

extern char** environ;

namespace mt::daemon {
namespace {

using std::chrono::seconds;

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + seconds(60));
}

// The first message of a worker's session: a node with one slot.
v1::WorkerMessage Hello(int cores) {
  v1::WorkerMessage hello;
  hello.mutable_register_()->set_node("n1");
  hello.mutable_register_()->set_worker_uid("u1");
  hello.mutable_register_()->set_version(std::string(rpc::Version()));
  hello.mutable_register_()->set_cores(cores);
  hello.mutable_register_()->add_slots()->set_device(v1::CPU_SLOT);
  return hello;
}

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "mt-service-" + base::RandomHex(6);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    coordinator_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start() {
    auto started = Coordinator::Start({.listen = *rpc::ParseEndpoint("127.0.0.1:0"),
                                       .state_dir = folder_,
                                       .on_store_failure = nullptr,
                                       .create_store = true});
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = std::move(started).value();
    Dial(coordinator_->endpoint());
  }
  void Dial(const rpc::Endpoint& endpoint) {
    channel_ = rpc::MakeChannel(endpoint);
    jobs_ = v1::Jobs::NewStub(channel_);
    ASSERT_TRUE(rpc::WaitConnected(*channel_, endpoint, "coordinator", seconds(30)).ok());
  }
  StatusOr<v1::SubmitResponse> Submit(const std::string& name,
                                      const std::string& id = base::NewUid()) {
    grpc::ClientContext context;
    SetDeadline(&context);
    context.AddMetadata(rpc::kActorKey, "alice");
    v1::SubmitRequest request;
    *request.mutable_spec() = TinyJob(name, 1);
    request.set_request_id(id);
    v1::SubmitResponse response;
    const Status status = rpc::FromGrpc(jobs_->Submit(&context, request, &response), context);
    if (!status.ok()) return status;
    return response;
  }
  StatusOr<v1::Operation> Cancel(const std::string& uid) {
    grpc::ClientContext context;
    SetDeadline(&context);
    context.AddMetadata(rpc::kActorKey, "alice");
    v1::CancelRequest request;
    request.mutable_job()->set_uid(uid);
    request.set_request_id(base::NewUid());
    v1::Operation operation;
    const Status status = rpc::FromGrpc(jobs_->Cancel(&context, request, &operation), context);
    if (!status.ok()) return status;
    return operation;
  }

  std::string folder_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
};

TEST_F(ServiceTest, ErrorsCarryTheirReason) {
  Start();
  ASSERT_TRUE(Submit("fortunes").ok());
  const auto twice = Submit("fortunes");
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(rpc::ReasonOf(twice.status()), "NAME_IN_USE");
}

TEST_F(ServiceTest, WatchEndsWithTheJob) {
  Start();
  const auto job = Submit("demo");
  ASSERT_TRUE(job.ok()) << job.status();
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::GetJobRequest request;
  request.mutable_job()->set_name("demo");
  const auto stream = jobs_->Watch(&context, request);
  v1::Job seen;
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.state(), v1::QUEUED);
  const auto operation = Cancel(job->job().uid());
  ASSERT_TRUE(operation.ok()) << operation.status();
  EXPECT_EQ(operation->actor(), "alice");
  while (stream->Read(&seen)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(seen.state(), v1::CANCELLED);
}

TEST_F(ServiceTest, AClientThatLeavesAndOneThatIsStillThereAtTheEnd) {
  Start();
  ASSERT_TRUE(Submit("demo").ok());
  v1::GetJobRequest request;
  request.mutable_job()->set_name("demo");
  v1::Job seen;
  grpc::ClientContext leaving;
  const auto left = jobs_->Watch(&leaving, request);
  ASSERT_TRUE(left->Read(&seen));
  leaving.TryCancel();
  EXPECT_EQ(left->Finish().error_code(), grpc::StatusCode::CANCELLED);
  grpc::ClientContext staying;
  SetDeadline(&staying);
  const auto stream = jobs_->Watch(&staying, request);
  ASSERT_TRUE(stream->Read(&seen));
  coordinator_->Stop();
  while (stream->Read(&seen)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServiceTest, AWaitEndsWithItsClient) {
  Start();
  const auto worker = v1::Worker::NewStub(channel_);
  grpc::ClientContext session_context;
  SetDeadline(&session_context);
  const auto session = worker->Session(&session_context);
  ASSERT_TRUE(session->Write(Hello(1)));
  v1::CoordinatorMessage message;
  ASSERT_TRUE(session->Read(&message));
  const auto job = Submit("demo");
  ASSERT_TRUE(job.ok()) << job.status();
  const auto cancel = Cancel(job->job().uid());  // its ranks never end
  ASSERT_TRUE(cancel.ok()) << cancel.status();
  ASSERT_FALSE(cancel->done());
  const auto operations = v1::Operations::NewStub(channel_);
  v1::WaitOperationRequest request;
  request.set_name(cancel->name());
  request.set_timeout_ms(300'000);
  grpc::ClientContext leaving;
  v1::Operation operation;
  std::thread waiter([&] {
    EXPECT_EQ(operations->Wait(&leaving, request, &operation).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  const auto waiting = [&](size_t count) {
    for (int i = 0; i < 600; ++i) {
      std::promise<size_t> seen;
      coordinator_->Post(
          [&](Core& core) { seen.set_value(core.api().operations().num_waiters()); });
      if (seen.get_future().get() == count) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  };
  EXPECT_TRUE(waiting(1));
  leaving.TryCancel();
  waiter.join();
  EXPECT_TRUE(waiting(0)) << "its place is free";
  session->WritesDone();
  session_context.TryCancel();
  session->Finish();
}

TEST_F(ServiceTest, InfoAndABacklogOfEventsInChunks) {
  Start();
  const auto admin = v1::Admin::NewStub(channel_);
  grpc::ClientContext info_context;
  SetDeadline(&info_context);
  v1::ServerInfo info;
  ASSERT_TRUE(admin->GetInfo(&info_context, {}, &info).ok());
  EXPECT_EQ(info.version(), rpc::Version());
  EXPECT_EQ(info.endpoint(), coordinator_->endpoint().ToString());
  EXPECT_FALSE(info.insecure());
  EXPECT_FALSE(info.coordinator_uid().empty());
  EXPECT_GT(info.started_us(), 0);
  const auto job = Submit("demo");
  ASSERT_TRUE(job.ok());
  std::promise<void> filled;
  coordinator_->Post([&](Core& core) {
    for (int i = 0; i < 10'000; ++i)
      core.ledger().AddEvent({.type = "Noise", .message = "n", .job_uid = job->job().uid()});
    core.ledger().MarkJob(*core.ledger().FindJob(job->job().uid()), Change::kState);
    core.ledger().AfterCommit([&](const Status& commit) {
      EXPECT_TRUE(commit.ok());
      filled.set_value();
    });
  });
  filled.get_future().wait();
  const auto telemetry = v1::JobTelemetry::NewStub(channel_);
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::WatchEventsRequest request;
  request.set_since_seq(1);
  request.set_limit(20'000);
  request.add_types("Noise");
  const auto stream = telemetry->WatchEvents(&context, request);
  v1::EventsChunk chunk;
  int chunks = 0;
  int events = 0;
  int64_t last = 0;
  int64_t oldest = 0;
  while (stream->Read(&chunk)) {
    ++chunks;
    EXPECT_EQ(chunk.dropped(), 0);
    oldest = std::max(oldest, chunk.oldest_seq());
    for (const v1::Event& event : chunk.events()) {
      EXPECT_GT(event.seq(), last);
      last = event.seq();
      ++events;
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(events, 10'000);
  EXPECT_LT(chunks, 100);
  EXPECT_EQ(oldest, 1);
}

TEST_F(ServiceTest, AWorkersSession) {
  Start();
  const auto worker = v1::Worker::NewStub(channel_);
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto session = worker->Session(&context);
  ASSERT_TRUE(session->Write(Hello(4)));
  v1::CoordinatorMessage message;
  ASSERT_TRUE(session->Read(&message));
  ASSERT_TRUE(message.has_registered());
  EXPECT_EQ(message.registered().heartbeat_interval_ms(), 2'000);
  EXPECT_EQ(message.registered().lease_ms(), 30'000);
  v1::WorkerMessage beat;
  beat.mutable_heartbeat()->set_beat(7);
  ASSERT_TRUE(session->Write(beat));
  ASSERT_TRUE(session->Read(&message));
  EXPECT_EQ(message.heartbeat_ack().beat(), 7);
  const auto job = Submit("demo");
  ASSERT_TRUE(job.ok());
  ASSERT_TRUE(session->Read(&message));
  EXPECT_EQ(message.assign().job_uid(), job->job().uid());
  EXPECT_EQ(message.assign().threads_per_rank(), 4);
  // Logs come from the worker that holds the rank.
  const auto telemetry = v1::JobTelemetry::NewStub(channel_);
  grpc::ClientContext logs_context;
  SetDeadline(&logs_context);
  v1::TailLogsRequest tail;
  tail.mutable_job()->set_name("demo");
  const auto logs = telemetry->TailLogs(&logs_context, tail);
  ASSERT_TRUE(session->Read(&message));
  ASSERT_TRUE(message.has_log_request());
  EXPECT_EQ(message.log_request().lines(), 100);
  v1::WorkerMessage reply;
  reply.mutable_log_reply()->set_request_id(message.log_request().request_id());
  reply.mutable_log_reply()->mutable_chunk()->set_data("hello\n");
  reply.mutable_log_reply()->mutable_chunk()->set_end(true);
  ASSERT_TRUE(session->Write(reply));
  v1::LogChunk chunk;
  ASSERT_TRUE(logs->Read(&chunk));
  EXPECT_EQ(chunk.data(), "hello\n");
  EXPECT_FALSE(logs->Read(&chunk));
  EXPECT_TRUE(logs->Finish().ok());
  session->WritesDone();
  while (session->Read(&message)) {
  }
  EXPECT_TRUE(session->Finish().ok());
}

// mt-coordinator as a process of its own.
class Program {
 public:
  explicit Program(const std::string& folder, const std::vector<const char*>& flags = {})
      : port_file_(folder + "/port") {
    std::filesystem::remove(port_file_);
    const std::string state = folder + "/state";
    const std::string log = folder + "/log";
    // Not opened: a program may be running there.
    if (CheckNoStore(state).ok()) {
      EXPECT_TRUE(SqliteStore::Create(state).ok());
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    std::vector<const char*> argv = {MT_COORDINATOR, "--listen",    "127.0.0.1:0",     "--state",
                                     state.c_str(),  "--port-file", port_file_.c_str()};
    argv.insert(argv.end(), flags.begin(), flags.end());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, MT_COORDINATOR, &actions, nullptr, const_cast<char**>(argv.data()),
                          environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Program() {
    if (pid_ > 0) End(SIGKILL);
  }
  rpc::Endpoint WaitEndpoint() {
    for (int i = 0; i < 600 && !base::Exists(port_file_); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto text = base::ReadFile(port_file_);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.ok() ? *rpc::ParseEndpoint(text->substr(0, text->find('\n'))) : rpc::Endpoint();
  }
  // The wait status; signal 0: waits for its own end.
  int End(int signal) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }

 private:
  std::string port_file_;
  pid_t pid_ = 0;
};

TEST_F(ServiceTest, TheProgramKeepsASubmittedJobOverKillNine) {
  std::string uid;
  {
    Program program(folder_);
    Dial(program.WaitEndpoint());
    const auto job = Submit("demo", "r1");
    ASSERT_TRUE(job.ok()) << job.status();
    uid = job->job().uid();
    EXPECT_TRUE(WIFSIGNALED(program.End(SIGKILL)));
  }
  Program program(folder_);
  Dial(program.WaitEndpoint());
  const auto again = Submit("demo", "r1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->existed());
  EXPECT_EQ(again->job().uid(), uid);
  Program second(folder_);  // same folder
  const int refused = second.End(0);
  ASSERT_TRUE(WIFEXITED(refused));
  EXPECT_EQ(WEXITSTATUS(refused), 65);
  const int stopped = program.End(SIGTERM);
  ASSERT_TRUE(WIFEXITED(stopped));
  EXPECT_EQ(WEXITSTATUS(stopped), 0);
}

// A worker's lease is the limit that the coordinator itself counts by.
TEST_F(ServiceTest, TheProgramsLimitOfSilenceIsTheLeaseOfItsWorkers) {
  Program program(folder_, {"--suspect-after", "4", "--lost-after", "8"});
  Dial(program.WaitEndpoint());
  const auto worker = v1::Worker::NewStub(channel_);
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto session = worker->Session(&context);
  ASSERT_TRUE(session->Write(Hello(1)));
  v1::CoordinatorMessage message;
  ASSERT_TRUE(session->Read(&message));
  EXPECT_EQ(message.registered().lease_ms(), 8'000) << "30'000 is the default";
  context.TryCancel();
  session->Finish();
}

}  // namespace
}  // namespace mt::daemon
