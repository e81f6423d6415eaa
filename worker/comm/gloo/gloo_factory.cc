// Resolves and checks the address to listen on before Gloo sees it: Gloo treats a failed look-up as
// success and leaks when it cannot bind.
#include "worker/comm/gloo/gloo_factory.h"

#include <cerrno>
#include <csignal>
#include <exception>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <utility>

#include <gloo/transport/tcp/device.h>

#include "common/base/files.h"
#include "worker/comm/gloo/gloo_group.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/gloo/tree_group.h"
#include "worker/comm/self_group.h"

namespace mt::comm {
namespace {

class GlooFactory final : public GroupFactory {
 public:
  GlooFactory(std::shared_ptr<gloo::transport::Device> device, RendezvousStore* store,
              CommConfig config)
      : device_(std::move(device)), store_(store), config_(std::move(config)) {}

  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override {
    RETURN_IF_ERROR(CheckSpec(spec));
    if (spec.members.size() == 1) return MakeSelfGroup(std::move(spec), config_);
    const base::MonotonicTime deadline = base::Clock::Real()->Now() + config_.connect_timeout;
    if (spec.words && static_cast<int>(spec.members.size()) > kLargestMesh) {
      return TreeGroup::Create(device_, std::move(spec), config_, store_, deadline);
    }
    ASSIGN_OR_RETURN(std::unique_ptr<GlooMesh> mesh,
                     GlooMesh::Connect(device_, spec, store_, deadline));
    return std::make_unique<GlooGroup>(std::move(spec), config_, std::move(mesh));
  }

 private:
  const std::shared_ptr<gloo::transport::Device> device_;
  RendezvousStore* const store_;
  const CommConfig config_;
};

// The address in numeric form.
StatusOr<std::string> Digits(const sockaddr* address, socklen_t length) {
  std::string digits(NI_MAXHOST, '\0');
  const int error =
      getnameinfo(address, length, digits.data(), NI_MAXHOST, nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return base::InvalidArgument("{}", gai_strerror(error));
  digits.resize(digits.find('\0'));
  return digits;
}

// The first IPv4 address of the interface, or its first IPv6 address if it has none.
StatusOr<std::string> AddressOfInterface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return base::ErrnoError(errno, "listing network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if (name != entry->ifa_name) continue;
      return Digits(entry->ifa_addr,
                    family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    }
  }
  return base::InvalidArgument("no interface {} with an address on this host", name);
}

// Resolves a name and tries to bind to it, which yields a proper error; Gloo's own checks do not.
StatusOr<std::string> CheckedAddress(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), nullptr, &hints, &found);
  if (error != 0) return base::InvalidArgument("address {}: {}", address, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const base::Fd probe(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe || bind(probe.get(), found->ai_addr, found->ai_addrlen) != 0) {
    return base::InvalidArgument("address {} is not one of this host: {}", address,
                                 base::Message(base::ErrnoError(errno, "bind")));
  }
  return Digits(found->ai_addr, found->ai_addrlen);
}

StatusOr<std::string> ListenAddress(const CommConfig& config) {
  if (!config.interface_name.empty() && !config.bind_address.empty()) {
    return base::InvalidArgument("give an interface ({}) or an address ({}), not both",
                                 config.interface_name, config.bind_address);
  }
  if (!config.interface_name.empty()) return AddressOfInterface(config.interface_name);
  return CheckedAddress(config.bind_address.empty() ? "127.0.0.1" : config.bind_address);
}

void IgnoreSigpipe() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

}  // namespace

StatusOr<std::unique_ptr<GroupFactory>> MakeGlooFactory(RendezvousStore* store, CommConfig config) {
  auto address = ListenAddress(config);
  if (!address.ok()) return base::Annotate(address.status(), "listening for collectives");
  IgnoreSigpipe();
  try {
    return std::make_unique<GlooFactory>(
        gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address->c_str())), store,
        std::move(config));
  } catch (const std::exception& error) {
    return base::InvalidArgument("listening for collectives on {}: {}", *address, error.what());
  }
}

}  // namespace mt::comm
