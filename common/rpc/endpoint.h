// Network addresses as users write them: "host:port", ":port", "host", "[::1]:port", or
// "unix:/path". Pure; thread-safe; no name is resolved.
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
  uint16_t port = kDefaultPort;     // 0: any free one, for servers only
  std::string unix_path;            // where set, a Unix socket: host and port are ignored

  // The form that gRPC takes and ParseEndpoint reads: "127.0.0.1:7070", "[::1]:7070",
  // "unix:/run/x.sock".
  std::string ToString() const;
};

// Missing parts take the defaults. InvalidArgument with an example for anything else.
StatusOr<Endpoint> ParseEndpoint(std::string_view text, uint16_t default_port = kDefaultPort);
// True where only this machine can reach the address: 127.0.0.0/8, ::1, "localhost", or a Unix
// socket.
bool IsLoopback(const Endpoint& endpoint);

}  // namespace mt::rpc
