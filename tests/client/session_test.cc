// How mtctl finds its coordinator, and how it identifies jobs.
#include "client/session/session.h"

#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include <gtest/gtest.h>

#include "client/session/dial.h"
#include "client/session/local_port.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "megatrain/v1/api.grpc.pb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mt-session-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("XDG_STATE_HOME", folder_.c_str(), 1);
    ::setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    ::unsetenv("MTCTL_COORDINATOR");
    ::unsetenv("MTCTL_CONTEXT");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(SessionTest, FlagThenEnvironmentThenDevCluster) {
  GlobalOptions options;
  ASSERT_TRUE(base::MakeDirs(folder_ + "/megatrain/dev").ok());
  ASSERT_TRUE(base::WriteFileAtomic(DevEndpointFile(), "127.0.0.1:1111\n").ok());
  EXPECT_EQ(ResolveEndpoint(options)->port, 1111);
  ::setenv("MTCTL_COORDINATOR", "127.0.0.1:2222", 1);
  EXPECT_EQ(ResolveEndpoint(options)->port, 2222);
  options.coordinator = "127.0.0.1:3333";
  EXPECT_EQ(ResolveEndpoint(options)->port, 3333);
  ::setenv("MTCTL_COORDINATOR", "host:port:what", 1);
  options.coordinator.clear();
  const auto bad = ResolveEndpoint(options);
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(base::Message(bad.status()).find("MTCTL_COORDINATOR"), std::string::npos);
}

// Where the units of systemd have it. The port is held all along, so that no other program can
// begin or end to listen there in between.
TEST_F(SessionTest, ACoordinatorAtTheDefaultPortIsFound) {
  const base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(rpc::kDefaultPort);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Another test may have it for a while.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    ASSERT_EQ(std::getenv("MT_REQUIRE_ROOT"), nullptr)
        << "another program has port " << rpc::kDefaultPort;
    GTEST_SKIP() << "another program has port " << rpc::kDefaultPort;
  }
  GlobalOptions options;
  const auto none = ResolveEndpoint(options);
  EXPECT_EQ(ExitCodeOf(none.status()), kExitConnection);
  EXPECT_NE(base::Message(none.status()).find("mtctl dev up"), std::string::npos);

  ASSERT_EQ(::listen(fd.get(), 1), 0);
  std::string source;
  const auto found = ResolveEndpoint(options, &source);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->ToString(), "127.0.0.1:7070");
  EXPECT_EQ(source, "the default");
}

TEST_F(SessionTest, AnUnreachableCoordinatorIsExitCode2) {
  GlobalOptions options;
  options.coordinator = "127.0.0.1:1";  // nobody listens on tcpmux
  EXPECT_EQ(ConnectLimit(options), control::kClientDial) << "unless it is told otherwise";
  options.connect_timeout_s = 0.25;
  const auto api = ConnectApi(options);
  ASSERT_FALSE(api.ok());
  EXPECT_EQ(ExitCodeOf(api.status()), kExitConnection) << api.status();
  EXPECT_EQ(base::Message(api.status()), "no coordinator at 127.0.0.1:1 (waited 250 ms)");
}

// One that begins while it is waited for, as behind a restart, is found. The port is held all
// along, in a way that lets the server in, so that no other program can have it before.
TEST_F(SessionTest, ACoordinatorThatBeginsLaterIsWaitedForWithAWord) {
  const base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const rpc::Endpoint endpoint{
      .host = "127.0.0.1", .port = ntohs(address.sin_port), .unix_path = ""};
  v1::Nodes::CallbackService service;
  std::unique_ptr<rpc::Server> server;
  const auto channel = rpc::MakeChannel(endpoint);
  int told = 0;
  EXPECT_EQ(
      Dial(*channel, endpoint,
           {.told_after = std::chrono::milliseconds(1),
            .limit = std::chrono::seconds(60),
            .tell =
                [&] {
                  ++told;
                  server = rpc::Server::Start({.listen = endpoint, .services = {&service}}).value();
                }}),
      OkStatus());
  EXPECT_EQ(told, 1);
}

TEST_F(SessionTest, NobodyIsWaitedForAsLongAsIsSaid) {
  const rpc::Endpoint endpoint = rpc::ParseEndpoint("127.0.0.1:1").value();
  const auto channel = rpc::MakeChannel(endpoint);
  testing::internal::CaptureStderr();
  const Status status =
      Dial(*channel, endpoint,
           {.told_after = std::chrono::milliseconds(20), .limit = std::chrono::milliseconds(60)});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "mtctl: waiting for the coordinator at 127.0.0.1:1, 0.06 s at most\n");
  EXPECT_EQ(base::Message(status), "no coordinator at 127.0.0.1:1 (waited 60 ms)");
}

TEST_F(SessionTest, JobsAreNamedByNameOrUid) {
  GlobalOptions options;
  options.job_namespace = "team";
  EXPECT_EQ(MakeJobRequest(options, "demo").job().name(), "demo");
  EXPECT_EQ(MakeJobRequest(options, "demo").job().namespace_(), "team");
  const std::string uid = "0f8fad5b-d9cb-469f-a165-70867728950e";
  EXPECT_EQ(MakeJobRequest(options, uid).job().uid(), uid);
  EXPECT_EQ(MakeJobRequest(options, "0f8fad5b-d9cb-469f-a165-70867728950g").job().uid(), "");
}

}  // namespace
}  // namespace mt::client
