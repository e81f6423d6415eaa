// The HTTP server over real sockets: its answers, and that no client can harm it by what it sends
// or omits.
#include "common/http/server.h"

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <random>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"

namespace mt::http {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Server::Config TestConfig() {
  Server::Config config{.listen = *rpc::ParseEndpoint("127.0.0.1:0"), .handlers = {}};
  config.handlers["/metrics"] = [] { return Response{.content_type = "text/x", .body = "a 1\n"}; };
  config.handlers["/broken"] = []() -> Response { throw std::runtime_error("oops"); };
  config.handlers["/down"] = [] { return Response{.status = 503, .body = "not yet\n"}; };
  return config;
}

class Client {
 public:
  explicit Client(const Server& server) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.endpoint().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  void Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0) return;  // the server has closed; its answer can still be read
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void EndSending() { shutdown(fd_.get(), SHUT_WR); }
  // Reads until `end` has arrived or the connection is closed.
  std::string ReadUntil(std::string_view end) {
    std::string out;
    char buffer[4096];
    while (end.empty() || !out.ends_with(end)) {
      const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (got <= 0) {
        closed_cleanly_ = got == 0;
        break;
      }
      out.append(buffer, static_cast<size_t>(got));
    }
    return out;
  }
  std::string ReadAll() { return ReadUntil(""); }
  bool closed_cleanly() const { return closed_cleanly_; }

 private:
  base::Fd fd_;
  bool closed_cleanly_ = false;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(Server::Config config = TestConfig()) {
    auto started = Server::Start(std::move(config));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::move(started).value();
  }
  std::string Ask(std::string_view request) {
    Client client(*server_);
    client.Send(request);
    return client.ReadAll();
  }
  std::unique_ptr<Server> server_;
};

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(HttpServerTest, AnswersGetAndHead) {
  Start();
  EXPECT_NE(server_->endpoint().port, 0);
  const std::string got = Ask("GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(got, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(got, HasSubstr("Content-Type: text/x\r\n"));
  EXPECT_THAT(got, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(got, EndsWith("\r\n\r\na 1\n"));
  const std::string head = Ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
  EXPECT_THAT(Ask("GET http://host:1/down HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 503 "));
}

TEST_F(HttpServerTest, KeepsTheConnectionAndTakesPipelinedRequests) {
  Start();
  Client client(*server_);
  client.Send(kGet);
  EXPECT_THAT(client.ReadUntil("a 1\n"), StartsWith("HTTP/1.1 200"));
  client.Send(std::string(kGet) + "GET /down HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string both = client.ReadUntil("not yet\n");
  EXPECT_THAT(both, HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(both, HasSubstr("HTTP/1.1 503"));
  EXPECT_EQ(server_->num_connections(), 1U);
}

TEST_F(HttpServerTest, RefusesWhatItDoesNotServe) {
  Start();
  const auto status = [&](std::string_view request) { return Ask(request).substr(0, 12); };
  EXPECT_EQ(status("GET /nothing HTTP/1.0\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(status("GET /../metrics HTTP/1.0\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(status("GET /broken HTTP/1.0\r\n\r\n"), "HTTP/1.1 500");
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"), "HTTP/1.1 400")
      << "no Host";
  EXPECT_EQ(status("this is no HTTP\r\n\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(status(std::string("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 11)), "HTTP/1.1 400")
      << "TLS";
  EXPECT_EQ(status("GET /metrics HTTP/9.9\r\nHost: x\r\n\r\n"), "HTTP/1.1 400");
  const std::string post = Ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(post, HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THAT(post, HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpServerTest, BoundsTheHeader) {
  Start();
  const std::string huge(100'000, 'x');
  Client client(*server_);
  client.Send("GET /metrics HTTP/1.1\r\nHost: x\r\nA: " + huge + "\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 431"));
  EXPECT_TRUE(client.closed_cleanly()) << "a reset could have taken the answer with it";
  EXPECT_THAT(Ask("GET /" + huge + " HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 431"));
}

TEST_F(HttpServerTest, ASlowOrSilentClientIsLetGo) {
  Server::Config config = TestConfig();
  config.request_timeout = milliseconds(50);
  config.idle_timeout = milliseconds(50);
  Start(std::move(config));
  Client silent(*server_);
  Client slow(*server_);
  slow.Send("GET /metr");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(slow.ReadAll(), "");
  while (server_->num_connections() != 0) std::this_thread::yield();
}

TEST_F(HttpServerTest, OneConnectionTooManyClosesTheQuietest) {
  Server::Config config = TestConfig();
  config.max_connections = 3;
  Start(std::move(config));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(*server_));
    clients.back()->Send(kGet);
    clients.back()->ReadUntil("a 1\n");
  }
  clients[0]->Send(kGet);  // makes the second connection the idle one
  clients[0]->ReadUntil("a 1\n");
  Client late(*server_);
  late.Send(kGet);
  EXPECT_THAT(late.ReadUntil("a 1\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(clients[1]->ReadAll(), "") << "closed";
  clients[0]->Send(kGet);
  EXPECT_THAT(clients[0]->ReadUntil("a 1\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(server_->num_connections(), 3U);
}

TEST_F(HttpServerTest, RandomBytesNeverHarmIt) {
  Start();
  std::mt19937 random(7);
  const std::string seed = "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
  for (int round = 0; round < 300; ++round) {
    std::string request = seed;
    for (int change = 0; change < 1 + round % 8; ++change) {
      request[random() % request.size()] = static_cast<char>(random() % 256);
    }
    Client client(*server_);
    client.Send(request);
    client.EndSending();
    const std::string got = client.ReadAll();
    EXPECT_TRUE(got.empty() || got.starts_with("HTTP/1.1 ")) << got;
  }
  EXPECT_THAT(Ask("GET /metrics HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, StopsWhileClientsAreConnected) {
  std::atomic<int> calls{0};
  Server::Config config = TestConfig();
  config.handlers["/count"] = [&calls] {
    ++calls;
    return Response{.body = "x"};
  };
  Start(std::move(config));
  Client idle(*server_);
  Client half(*server_);
  half.Send("GET /count HTTP/1.1\r\n");
  server_->Stop();
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_EQ(half.ReadAll(), "");
  EXPECT_EQ(calls, 0);
  server_->Stop();
}

TEST_F(HttpServerTest, SaysWhyItCannotListen) {
  Start();
  Server::Config config = TestConfig();
  config.listen = server_->endpoint();
  const auto taken = Server::Start(std::move(config));
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::Message(taken.status()), StartsWith("cannot listen on 127.0.0.1:"));
  config = TestConfig();
  config.listen.host = "192.0.2.1";  // RFC 5737: an address of no host
  EXPECT_EQ(Server::Start(std::move(config)).status().code(), absl::StatusCode::kInvalidArgument);
  config = TestConfig();
  config.listen.unix_path = "/tmp/x";
  EXPECT_EQ(Server::Start(std::move(config)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace mt::http
