// A whole coordinator's pages and probes over sockets: what a scraper, a service manager and
// Kubernetes see.
#include "daemon/service/coordinator.h"

#include <arpa/inet.h>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/notify.h"
#include "common/rpc/channel.h"
#include "common/rpc/reason.h"
#include "daemon/authority/authority.h"
#include "daemon/core/core.h"
#include "megatrain/v1/api.grpc.pb.h"
#include "tests/common/metrics/exposition.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The whole answer to "GET path".
std::string Get(const rpc::Endpoint& endpoint, const std::string& path) {
  const base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return "";
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::string out;
  char buffer[16'384];
  for (ssize_t got = 0; (got = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) {
    out.append(buffer, static_cast<size_t>(got));
  }
  return out;
}

metrics::Exposition Metrics(const Coordinator& coordinator) {
  const std::string page = Get(coordinator.http_endpoint(), "/metrics");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(page, HasSubstr("text/plain; version=0.0.4"));
  return metrics::Exposition(page.substr(page.find("\r\n\r\n") + 4));
}

double Sum(const metrics::Exposition& shown, const std::string& name, const std::string& label) {
  double sum = 0;
  for (const auto& [series, value] : shown.samples()) {
    if (series.starts_with(name) && series.find(label) != std::string::npos) sum += value;
  }
  return sum;
}

class CoordinatorPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "mt-pages-" + base::RandomHex(6);
    config_ = {.listen = *rpc::ParseEndpoint("127.0.0.1:0"),
               .state_dir = folder_,
               .on_store_failure = nullptr,
               .create_store = true};
  }
  void TearDown() override {
    coordinator_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start() {
    auto started = Coordinator::Start(config_);
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = std::move(started).value();
  }
  // An empty list of jobs, and a job that does not exist.
  void Call() {
    const auto channel = rpc::MakeChannel(coordinator_->endpoint());
    const auto jobs = v1::Jobs::NewStub(channel);
    grpc::ClientContext listing;
    listing.set_wait_for_ready(true);
    v1::ListJobsResponse list;
    ASSERT_TRUE(jobs->List(&listing, {}, &list).ok());
    grpc::ClientContext getting;
    v1::GetJobRequest request;
    request.mutable_job()->set_name("nobody");
    v1::Job job;
    EXPECT_EQ(jobs->Get(&getting, request, &job).error_code(), grpc::StatusCode::NOT_FOUND);
  }

  std::string folder_;
  Coordinator::Config config_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(CoordinatorPagesTest, MetricsAndProbes) {
  Start();
  EXPECT_THAT(Get(coordinator_->http_endpoint(), "/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(coordinator_->http_endpoint(), "/readyz"), StartsWith("HTTP/1.1 200"));
  const metrics::Exposition before = Metrics(*coordinator_);
  EXPECT_EQ(before.Count("grpc_server_"), 878) << "the rest of the budget is in meter_test.cc";
  Call();
  // A call is counted when the server is done with it, which may be after the client.
  metrics::Exposition after = Metrics(*coordinator_);
  while (Sum(after, "grpc_server_handled_total", "grpc_code") < 2) after = Metrics(*coordinator_);
  EXPECT_EQ(after.Count("grpc_server_"), 878) << "calls make no new series";
  EXPECT_EQ(Sum(after, "grpc_server_started_total", "Jobs"), 2);
  EXPECT_EQ(Sum(after, "grpc_server_handled_total", "\"OK\""), 1);
  EXPECT_EQ(Sum(after, "grpc_server_handled_total", "\"NotFound\""), 1);
  EXPECT_GT(after.Value("mt_resident_memory_bytes"), 1e6);
  EXPECT_GT(after.Value("mt_storage_free_bytes{root=\"state\"}"), 0);
}

TEST_F(CoordinatorPagesTest, AnAddressBeyondThisMachineMustBeMeant) {
  config_.listen.host = "0.0.0.0";
  EXPECT_THAT(base::Message(Coordinator::Start(config_).status()), HasSubstr("--insecure"));
  config_.listen.host = "127.0.0.1";
  config_.http_listen.host = "0.0.0.0";
  const auto refused = Coordinator::Start(config_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(base::Message(refused.status()), StartsWith("--http-listen 0.0.0.0:0"));
  EXPECT_FALSE(std::filesystem::exists(folder_)) << "refused before anything was touched";
  config_.insecure = true;
  Start();
  const auto admin = v1::Admin::NewStub(rpc::MakeChannel(coordinator_->endpoint()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::ServerInfo info;
  ASSERT_TRUE(admin->GetInfo(&context, {}, &info).ok());
  EXPECT_TRUE(info.insecure());
  EXPECT_EQ(info.http_endpoint(), coordinator_->http_endpoint().ToString());
}

// HealthCheckRequest and -Response by messages that lie on the wire as they do: 1 is SERVING.
int Health(const rpc::Endpoint& endpoint, const std::string& service) {
  grpc::TemplatedGenericStub<v1::GetOperationRequest, v1::Error> stub(rpc::MakeChannel(endpoint));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::GetOperationRequest request;
  request.set_name(service);
  v1::Error response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get().ok() ? response.code() : -1;
}

// The reason with which a unary call with an empty request is refused; "" where it is not, "none"
// where it is refused without one.
std::string RefusalOf(const rpc::Endpoint& endpoint,
                      const google::protobuf::MethodDescriptor& rpc) {
  grpc::TemplatedGenericStub<v1::GetInfoRequest, v1::Error> stub(rpc::MakeChannel(endpoint));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::GetInfoRequest request;
  v1::Error response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, fmt::format("/{}/{}", rpc.service()->full_name(), rpc.name()), {},
                 &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  if (status.ok() || status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return "";
  const auto found = context.GetServerTrailingMetadata().find(rpc::kReasonKey);
  if (found == context.GetServerTrailingMetadata().end()) return "none";
  return {found->second.data(), found->second.size()};
}

// Whatever is not named here as a read changes something, and is refused: new calls, too.
TEST_F(CoordinatorPagesTest, EveryCallThatChangesSomethingIsRefusedWhileSuperseded) {
  const std::set<std::string> reads = {"Jobs.Validate",
                                       "Jobs.Get",
                                       "Jobs.List",
                                       "Checkpoints.List",
                                       "Operations.Get",
                                       "Operations.List",
                                       "Operations.Wait",
                                       "Jobs.HoldOutput",  // says that a client listens
                                       "Jobs.WhoHolds",
                                       "Nodes.List",
                                       "Nodes.ListOrphans",
                                       "Admin.GetInfo",
                                       "JobTelemetry.QueryHistory"};
  Start();
  std::promise<void> told;
  coordinator_->Post([&told](Core& core) {
    core.authority().Supersede("superseded: a test says so");
    told.set_value();
  });
  told.get_future().get();
  const google::protobuf::FileDescriptor* file = v1::GetInfoRequest::descriptor()->file();
  int refused = 0;
  for (int s = 0; s < file->service_count(); ++s) {
    for (int m = 0; m < file->service(s)->method_count(); ++m) {
      const google::protobuf::MethodDescriptor& method = *file->service(s)->method(m);
      const std::string name = fmt::format("{}.{}", method.service()->name(), method.name());
      if (method.server_streaming() || name == "Admin.DeclareRestore") continue;
      const std::string reason = RefusalOf(coordinator_->endpoint(), method);
      if (reads.contains(name)) {
        EXPECT_NE(reason, rpc::reason::kCoordinatorSuperseded) << name;
      } else if (!reason.empty()) {
        EXPECT_EQ(reason, rpc::reason::kCoordinatorSuperseded) << name;
        ++refused;
      }
    }
  }
  EXPECT_GE(refused, 9);
  // Gauges follow once a second.
  double shown = 0;
  for (int i = 0; i < 100 && shown == 0; ++i) {
    shown = Metrics(*coordinator_).samples().at("mt_superseded");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(shown, 1);
}

TEST_F(CoordinatorPagesTest, TheHealthPortSaysAliveAndReadyAndServesNothingElse) {
  config_.health_listen = *rpc::ParseEndpoint("127.0.0.1:0");
  Start();
  const rpc::Endpoint endpoint = coordinator_->health_endpoint().value();
  EXPECT_EQ(Health(endpoint, ""), 1);
  // Ready a moment after the start: the port is brought up to date once a second.
  while (Health(endpoint, "megatrain.v1.ready") != 1) {
  }
  EXPECT_EQ(Health(endpoint, "another"), -1);
  const auto jobs = v1::Jobs::NewStub(rpc::MakeChannel(endpoint));
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  EXPECT_EQ(jobs->List(&context, {}, &list).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(CoordinatorPagesTest, ATakenHttpPortIsSaid) {
  Start();
  Coordinator::Config second = config_;
  second.state_dir = folder_ + "-2";
  second.http_listen = coordinator_->http_endpoint();
  EXPECT_THAT(base::Message(Coordinator::Start(second).status()), StartsWith("cannot listen on"));
  std::filesystem::remove_all(second.state_dir);
}

TEST_F(CoordinatorPagesTest, TheLoopThatWorksPingsTheManager) {
  const std::string name = "@mt-pages-" + base::RandomHex(8);
  const base::Fd manager(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  ASSERT_EQ(bind(manager.get(), reinterpret_cast<sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
            0);
  base::Notifier notifier({.notify_socket = name.c_str(), .watchdog_usec = "400000"});
  config_.notifier = &notifier;
  Start();
  int pings = 0;
  bool status = false;
  while (pings < 3 || !status) {
    char buffer[512];
    const ssize_t got = recv(manager.get(), buffer, sizeof(buffer), 0);
    ASSERT_GT(got, 0);
    const std::string_view message(buffer, static_cast<size_t>(got));
    pings += message == "WATCHDOG=1" ? 1 : 0;
    status |= message == "STATUS=0 live jobs, 0 workers";
  }
  coordinator_->Stop();
}

}  // namespace
}  // namespace mt::daemon
