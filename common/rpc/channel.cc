// gRPC's channel arguments for the numbers of common/control/numbers.h.
#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "common/control/numbers.h"

namespace mt::rpc {
namespace {

int Ms(std::chrono::milliseconds value) { return static_cast<int>(value.count()); }

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Ms(control::kKeepaliveInterval));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Ms(control::kKeepaliveTimeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS,
              Ms(control::kKeepaliveShortest));
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Ms(control::kReconnectFirst));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Ms(control::kReconnectCap));
  // Despite its name, gRPC uses this as the deadline of one connection attempt.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Ms(control::kConnectAttempt));
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(control::kMaxMessageBytes);
  args.SetMaxSendMessageSize(control::kMaxMessageBytes);
  return grpc::CreateCustomChannel(endpoint.ToString(), grpc::InsecureChannelCredentials(), args);
}

Status WaitConnected(grpc::Channel& channel, const Endpoint& endpoint, std::string_view what,
                     std::chrono::milliseconds limit) {
  if (channel.WaitForConnected(std::chrono::system_clock::now() + limit)) return OkStatus();
  return base::Unavailable("no {} at {} (waited {} ms)", what, endpoint.ToString(), limit.count());
}

}  // namespace mt::rpc
