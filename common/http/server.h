// A small HTTP/1.1 server for scrapers and probes: GET and HEAD of a fixed table of paths, on a
// thread of its own. Requests are bounded in header bytes, time and connections; whatever a client
// sends, it gets a status code (400, 404, 405, 413, 431, 500) or a closed connection. Plain text
// without authentication: it listens on loopback unless the operator says otherwise.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace mt::http {

// A handler's answer.
struct Response {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Runs on the server's thread, one at a time, so it must not block. An exception is answered with
// 500.
using Handler = std::function<Response()>;

class Server {
 public:
  struct Config {
    rpc::Endpoint listen;                                  // port 0: any free one; no Unix sockets
    std::map<std::string, Handler, std::less<>> handlers;  // by path: "/metrics"
    // Beyond this many, the connection that has been idle for the longest time is closed, so that
    // idle clients cannot lock out a probe. At least 1.
    size_t max_connections = 64;
    size_t max_header_bytes = 8'192;
    // Limit from a request's first byte to its last, and again for sending the answer; and limit
    // between requests.
    std::chrono::milliseconds request_timeout{10'000};
    std::chrono::milliseconds idle_timeout{60'000};
  };

  // The server listens when Start returns. FailedPrecondition ("cannot listen on ...") where the
  // port is in use, InvalidArgument for an address that this host does not have or a Unix socket.
  static StatusOr<std::unique_ptr<Server>> Start(Config config);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // Stop

  // The bound address; its port is never 0.
  const rpc::Endpoint& endpoint() const;
  size_t num_connections() const;  // thread-safe
  // Closes all connections and joins the thread; no handler runs afterwards. One thread may call
  // it, and repeatedly.
  void Stop();

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mt::http
