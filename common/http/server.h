// A small HTTP/1.1 server for what machines scrape and probe: GET and HEAD of a fixed table of
// paths, on a thread of its own. Requests are bounded (header bytes, time, connections); whatever
// a client sends, the answer is a status code (400, 404, 405, 431) or a closed connection. Plain
// text, no authentication: listen on loopback unless the operator says otherwise.
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

struct Response {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Called on the server's thread, one at a time: must not block. An exception is answered with 500.
using Handler = std::function<Response()>;

class Server {
 public:
  struct Config {
    rpc::Endpoint listen;                                  // port 0: any free one; no Unix sockets
    std::map<std::string, Handler, std::less<>> handlers;  // by path: "/metrics"
    // One more connection closes the one that has been quiet for the longest time, so that idle
    // clients cannot keep a probe out.
    size_t max_connections = 64;
    size_t max_header_bytes = 8'192;
    // From a request's first byte to its last, and for sending its answer; between requests.
    std::chrono::milliseconds request_timeout{10'000};
    std::chrono::milliseconds idle_timeout{60'000};
  };

  // Listens when it returns. FailedPrecondition ("cannot listen on ...") where the port is in use,
  // InvalidArgument for an address that this host does not have.
  static StatusOr<std::unique_ptr<Server>> Start(Config config);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // Stop

  // As bound: the port is never 0.
  const rpc::Endpoint& endpoint() const;
  size_t num_connections() const;  // thread-safe
  // Closes all connections and ends the thread; no handler runs afterwards. Called by one thread.
  void Stop();

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mt::http
