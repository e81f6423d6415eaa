// Address checks before gRPC binds, whose errors say too little, then the builder's settings and
// the server's life.
#include "common/rpc/server.h"

#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/mutex.h"
#include "common/control/numbers.h"

namespace mt::rpc {
namespace {

int ToMs(std::chrono::milliseconds value) { return static_cast<int>(value.count()); }

Status InUse(const Endpoint& endpoint) {
  return base::FailedPrecondition(
      "cannot listen on {}: another program listens there; stop it or choose another address (port "
      "0 takes a free one)",
      endpoint.ToString());
}

// gRPC reports a failed bind as a null server only, so the bind is tried beforehand to get its
// error.
Status ProbeTcp(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int code = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (code != 0) {
    return base::InvalidArgument("cannot listen on {}: {}", endpoint.ToString(),
                                 gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const base::Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return base::ErrnoError(errno, "socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0) return OkStatus();
  if (errno == EADDRINUSE) return InUse(endpoint);
  return base::ErrnoError(errno, fmt::format("cannot listen on {}", endpoint.ToString()));
}

// Removes a socket file that a killed server left behind; refuses one that a server listens on.
Status ProbeUnix(const Endpoint& endpoint) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (endpoint.unix_path.size() >= sizeof(address.sun_path)) {
    return base::InvalidArgument("cannot listen on {}: a socket's path has at most {} bytes",
                                 endpoint.ToString(), sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, endpoint.unix_path.data(), endpoint.unix_path.size());
  const base::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return base::ErrnoError(errno, "socket");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return InUse(endpoint);
  }
  if (errno == ECONNREFUSED && unlink(endpoint.unix_path.c_str()) != 0) {
    return base::ErrnoError(errno, fmt::format("remove {}", endpoint.unix_path));
  }
  return OkStatus();
}

void SetArguments(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ToMs(control::kKeepaliveInterval));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ToMs(control::kKeepaliveTimeout));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS,
                              ToMs(control::kKeepaliveShortest));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              ToMs(control::kKeepaliveShortest));
  // Without this two servers could share a port, and each would get half of the calls.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->SetMaxReceiveMessageSize(control::kMaxMessageBytes);
  builder->SetMaxSendMessageSize(control::kMaxMessageBytes);
}

}  // namespace

struct Server::State {
  grpc::CallbackGenericService none;
  std::unique_ptr<grpc::Server> server;
  base::Mutex mu;
  bool stopped GUARDED_BY(mu) = false;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() { Shutdown(std::chrono::milliseconds(0)); }

StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config) {
  CHECK(config.services.empty() == config.health_only) << "services, or health alone";
  const bool is_unix = !config.listen.unix_path.empty();
  RETURN_IF_ERROR(is_unix ? ProbeUnix(config.listen) : ProbeTcp(config.listen));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetArguments(&builder);
  int port = 0;
  builder.AddListeningPort(config.listen.ToString(), grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : config.services) builder.RegisterService(service);
  auto state = std::make_unique<State>();
  // gRPC refuses to start a server without a service; this one answers every call with
  // UNIMPLEMENTED.
  if (config.health_only) builder.RegisterCallbackGenericService(&state->none);
  if (config.configure) config.configure(&builder);
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) return InUse(config.listen);
  std::unique_ptr<Server> out(new Server(std::move(state)));
  out->endpoint_ = config.listen;
  if (!is_unix) out->endpoint_.port = static_cast<uint16_t>(port);
  out->SetServing(false);
  return out;
}

void Server::SetServing(bool serving) {
  state_->server->GetHealthCheckService()->SetServingStatus(serving);
}

void Server::SetServing(const std::string& service, bool serving) {
  state_->server->GetHealthCheckService()->SetServingStatus(service, serving);
}

void Server::Shutdown(std::chrono::milliseconds grace) {
  {
    const base::MutexLock lock(&state_->mu);
    if (state_->stopped) return;
    state_->stopped = true;
  }
  state_->server->Shutdown(std::chrono::system_clock::now() + grace);
  state_->server->Wait();
}

}  // namespace mt::rpc
