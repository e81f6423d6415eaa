// Parsing by hand instead of by getaddrinfo: nothing is resolved, and each mistake gets its own
// message.
#include "common/rpc/endpoint.h"

#include <arpa/inet.h>
#include <charconv>

namespace mt::rpc {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

StatusOr<uint16_t> ParsePort(std::string_view text, std::string_view whole) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return base::InvalidArgument(
        "'{}' is no address: the port must be 0 to 65535, as in 127.0.0.1:7070", whole);
  }
  return port;
}

}  // namespace

std::string Endpoint::ToString() const {
  if (!unix_path.empty()) return fmt::format("{}{}", kUnixPrefix, unix_path);
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool IsLoopback(const Endpoint& endpoint) {
  if (!endpoint.unix_path.empty() || endpoint.host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, endpoint.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, endpoint.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

StatusOr<Endpoint> ParseEndpoint(std::string_view text, uint16_t default_port) {
  Endpoint out;
  out.port = default_port;
  if (text.starts_with(kUnixPrefix)) {
    out.unix_path = text.substr(kUnixPrefix.size());
    if (out.unix_path.empty()) return base::InvalidArgument("'{}' names no socket file", text);
    return out;
  }
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) {
      return base::InvalidArgument("'{}' is no address: ']' is missing, as in [::1]:7070", text);
    }
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    has_port = rest.starts_with(':');
    if (!rest.empty() && !has_port) {
      return base::InvalidArgument("'{}' is no address: write it as [::1]:7070", text);
    }
    port = has_port ? rest.substr(1) : rest;
  } else if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    if (text.find(':', colon + 1) != std::string_view::npos) {
      return base::InvalidArgument("'{}' is no address: write IPv6 as [::1]:7070", text);
    }
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  }
  if (host.find_first_of(" \t\n/") != std::string_view::npos) {
    return base::InvalidArgument("'{}' is no address: write it as 127.0.0.1:7070", text);
  }
  if (!host.empty()) out.host = host;
  if (has_port) {
    ASSIGN_OR_RETURN(out.port, ParsePort(port, text));
  }
  return out;
}

}  // namespace mt::rpc
