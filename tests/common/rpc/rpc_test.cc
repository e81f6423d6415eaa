// Addresses, reasons, and servers on real sockets.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/control/numbers.h"
#include "common/rpc/channel.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/reason.h"
#include "common/rpc/server.h"
#include "megatrain/v1/api.grpc.pb.h"

namespace mt::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Endpoint, FillsWhatIsMissing) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {{"", "127.0.0.1:7070"},
               {":9", "127.0.0.1:9"},
               {"node7", "node7:7070"},
               {"10.0.0.1:65535", "10.0.0.1:65535"},
               {"[::1]:0", "[::1]:0"},
               {"[fe80::2]", "[fe80::2]:7070"},
               {"unix:/run/a.sock", "unix:/run/a.sock"}};
  for (const auto& one : cases) {
    const auto parsed = ParseEndpoint(one.text);
    ASSERT_TRUE(parsed.ok()) << one.text << ": " << parsed.status();
    EXPECT_EQ(parsed->ToString(), one.expected);
    EXPECT_EQ(ParseEndpoint(parsed->ToString())->ToString(), one.expected);
  }
}

TEST(Endpoint, RefusesNonsense) {
  for (const char* text : {"host:", "host:x", "host:65536", "host:-1", "::1", "[::1", "[::1]x",
                           "a b:1", "http://x:1", "unix:"}) {
    const auto parsed = ParseEndpoint(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Reason, TravelsWithTheStatus) {
  const Status status = WithReason(base::NotFound("no job"), reason::kUnknownJob);
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_JOB");
  EXPECT_EQ(ReasonOf(base::NotFound("plain")), "");
  EXPECT_TRUE(WithReason(OkStatus(), reason::kUnknownJob).ok());
}

TEST(Status, EveryCodeGoesThereAndBack) {
  for (int code = 0; code <= 16; ++code) {
    const Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status) << code;
  }
}

TEST(Server, PortInUseIsAClearError) {
  megatrain::v1::Nodes::CallbackService service;
  auto first = Server::Start({.listen = *ParseEndpoint("127.0.0.1:0"), .services = {&service}});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_NE((*first)->endpoint().port, 0);
  const auto second = Server::Start({.listen = (*first)->endpoint(), .services = {&service}});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(base::Message(second.status()).find((*first)->endpoint().ToString()),
            std::string::npos);
}

TEST(Server, TakesOverADeadSocketFileButNotALivingOne) {
  megatrain::v1::Nodes::CallbackService service;
  const Endpoint listen{
      .host = "",
      .port = 0,
      .unix_path = ::testing::TempDir() + "mt-rpc-" + base::RandomHex(4) + ".sock"};
  {  // A server that was killed leaves its socket file.
    const base::Fd fd(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    listen.unix_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(base::Exists(listen.unix_path));
  auto first = Server::Start({.listen = listen, .services = {&service}});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Server::Start({.listen = listen, .services = {&service}}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const auto channel = MakeChannel(listen);
  EXPECT_TRUE(WaitConnected(*channel, listen, "server", seconds(10)).ok());
}

// The port is held all along, so that no other program can begin to listen there.
TEST(Channel, NobodyThere) {
  const base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const Endpoint endpoint{.host = "127.0.0.1", .port = ntohs(address.sin_port), .unix_path = ""};
  const auto channel = MakeChannel(endpoint);
  const Status status = WaitConnected(*channel, endpoint, "coordinator", milliseconds(300));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(base::Message(status).find("no coordinator at " + endpoint.ToString()),
            std::string::npos);
}

}  // namespace
}  // namespace mt::rpc
