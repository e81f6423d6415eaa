// The accept loop and the list of connections, ordered by their last request, on one thread that
// runs a Boost.Asio context. Only num_connections is read by other threads.
#include "common/http/server.h"

#include <atomic>
#include <list>
#include <pthread.h>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/http/connection.h"

namespace mt::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// How long to wait after a failed accept (no file descriptor left) before the next.
constexpr std::chrono::milliseconds kAcceptPause{100};

StatusOr<tcp::acceptor> Listen(asio::io_context* context, const rpc::Endpoint& endpoint) {
  const std::string name = endpoint.ToString();
  if (!endpoint.unix_path.empty()) {
    return base::InvalidArgument("cannot listen on {}: HTTP wants HOST:PORT", name);
  }
  ErrorCode error;
  const auto found = tcp::resolver(*context).resolve(
      endpoint.host, std::to_string(endpoint.port),
      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return base::InvalidArgument("cannot listen on {}: {}", name, error.message());
  }
  const tcp::endpoint address = *found.begin();
  tcp::acceptor acceptor(*context);
  acceptor.open(address.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(address, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return base::FailedPrecondition(
        "cannot listen on {}: another program listens there; stop it or choose another address "
        "(port 0 takes a free one)",
        name);
  }
  if (error) return base::InvalidArgument("cannot listen on {}: {}", name, error.message());
  return acceptor;
}

}  // namespace

struct Server::State {
  explicit State(Config the_config) : config(std::move(the_config)), retry(context) {
    hooks.active = [this](Connection* connection) { Touch(connection); };
    hooks.gone = [this](Connection* connection) {
      std::erase_if(connections, [&](const auto& other) { return other.get() == connection; });
      num_connections = connections.size();
    };
  }
  void Accept();
  void Admit(tcp::socket socket);
  void Touch(const Connection* connection);

  Config config;
  asio::io_context context{1};
  asio::steady_timer retry;
  std::unique_ptr<tcp::acceptor> acceptor;
  Connection::Hooks hooks;
  std::list<std::shared_ptr<Connection>> connections;  // least recently active first
  std::atomic<size_t> num_connections{0};
  rpc::Endpoint endpoint;
  std::thread thread;
};

void Server::State::Touch(const Connection* connection) {
  for (auto it = connections.begin(); it != connections.end(); ++it) {
    if (it->get() != connection) continue;
    connections.splice(connections.end(), connections, it);
    return;
  }
}

void Server::State::Admit(tcp::socket socket) {
  while (connections.size() >= config.max_connections) {
    const auto quietest = connections.front();
    quietest->Close();  // removes itself from the list
  }
  ErrorCode ignored;
  // A response's header and body are two writes: Nagle's algorithm would hold back the second until
  // the first is acknowledged.
  socket.set_option(tcp::no_delay(true), ignored);
  connections.push_back(std::make_shared<Connection>(std::move(socket), &config, &hooks));
  num_connections = connections.size();
  connections.back()->Run();
}

void Server::State::Accept() {
  acceptor->async_accept([this](const ErrorCode& error, tcp::socket socket) {
    if (!acceptor->is_open()) return;
    if (!error) {
      Admit(std::move(socket));
      Accept();
      return;
    }
    log::Warn("HTTP: accept failed", {{"error", error.message()}});
    retry.expires_after(kAcceptPause);
    retry.async_wait([this](const ErrorCode& cancelled) {
      if (!cancelled) Accept();
    });
  });
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() { Stop(); }

StatusOr<std::unique_ptr<Server>> Server::Start(Config config) {
  CHECK(config.max_connections > 0) << "a server without connections";
  auto state = std::make_unique<State>(std::move(config));
  auto acceptor = Listen(&state->context, state->config.listen);
  if (!acceptor.ok()) return std::move(acceptor).status();
  state->acceptor = std::make_unique<tcp::acceptor>(std::move(acceptor).value());
  state->endpoint = state->config.listen;
  state->endpoint.port = state->acceptor->local_endpoint().port();
  state->Accept();
  state->thread = std::thread([state = state.get()] { state->context.run(); });
  pthread_setname_np(state->thread.native_handle(), "mt-http");
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

const rpc::Endpoint& Server::endpoint() const { return state_->endpoint; }
size_t Server::num_connections() const { return state_->num_connections; }

void Server::Stop() {
  if (!state_->thread.joinable()) return;
  asio::post(state_->context, [state = state_.get()] {
    ErrorCode ignored;
    state->acceptor->close(ignored);
    state->retry.cancel();
    while (!state->connections.empty()) {
      const auto connection = state->connections.front();
      connection->Close();
    }
  });
  // run() returns, as every operation has been cancelled.
  state_->thread.join();
}

}  // namespace mt::http
