#include "worker/comm/gloo/gloo_factory.h"

#include <csignal>
#include <exception>
#include <netdb.h>
#include <string>
#include <utility>

#include <gloo/transport/tcp/device.h>

#include "worker/comm/gloo/gloo_group.h"
#include "worker/comm/gloo/mesh.h"
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
    ASSIGN_OR_RETURN(std::unique_ptr<GlooMesh> mesh,
                     GlooMesh::Connect(device_, spec, store_, deadline));
    return std::make_unique<GlooGroup>(std::move(spec), config_, std::move(mesh));
  }

 private:
  const std::shared_ptr<gloo::transport::Device> device_;
  RendezvousStore* const store_;
  const CommConfig config_;
};

// The address as digits. Gloo looks names up too, but takes a failure for an answer and reads it.
StatusOr<std::string> NumericAddress(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return base::InvalidArgument("address {} for collectives: {}", address, gai_strerror(error));
  }
  std::string digits(NI_MAXHOST, '\0');
  const int name_error =
      getnameinfo(found->ai_addr, found->ai_addrlen, digits.data(),
                  static_cast<socklen_t>(digits.size()), nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  if (name_error != 0) {
    return base::InvalidArgument("address {} for collectives: {}", address,
                                 gai_strerror(name_error));
  }
  digits.resize(digits.find('\0'));
  return digits;
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
  if (!config.interface_name.empty() && !config.bind_address.empty()) {
    return base::InvalidArgument("give an interface ({}) or an address ({}) for collectives",
                                 config.interface_name, config.bind_address);
  }
  gloo::transport::tcp::attr attributes;
  attributes.iface = config.interface_name;
  if (config.interface_name.empty()) {
    ASSIGN_OR_RETURN(
        attributes.hostname,
        NumericAddress(config.bind_address.empty() ? "127.0.0.1" : config.bind_address));
  }
  IgnoreSigpipe();
  try {
    return std::make_unique<GlooFactory>(gloo::transport::tcp::CreateDevice(attributes), store,
                                         std::move(config));
  } catch (const std::exception& error) {
    return base::InvalidArgument("listening for collectives on {}: {}",
                                 attributes.iface.empty() ? attributes.hostname : attributes.iface,
                                 error.what());
  }
}

}  // namespace mt::comm
