// Addresses as users write them: "host:port", ":port", "host", "[::1]:port", or "unix:/path". Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::rpc {

inline constexpr char kDefaultHost[] = "127.0.0.1";
inline constexpr uint16_t kDefaultPort = 7070;

struct Endpoint {
  std::string host = kDefaultHost;  // without brackets
  uint16_t port = kDefaultPort;     // 0: any free one, for servers
  std::string unix_path;            // set: a Unix socket; host and port mean nothing

  // What gRPC takes and ParseEndpoint reads: "127.0.0.1:7070", "[::1]:7070", "unix:/run/x.sock".
  std::string ToString() const;
};

// Missing parts are the defaults. InvalidArgument with an example for anything else.
StatusOr<Endpoint> ParseEndpoint(std::string_view text, uint16_t default_port = kDefaultPort);
// Whether the host names this machine only: 127.0.0.0/8, ::1, "localhost", or a Unix socket.
bool IsLoopback(const Endpoint& endpoint);

}  // namespace mt::rpc
