// The boot stands beside the node's name for nodes that are given one name by mistake.
#include "worker/comm/host_identity.h"

#include <fmt/format.h>

#include "common/base/ids.h"

namespace mt::comm {

std::string HostIdentity(std::string_view node) {
  std::string boot = base::BootId();
  return node.empty() ? boot : fmt::format("{}/{}", node, boot);
}

}  // namespace mt::comm
