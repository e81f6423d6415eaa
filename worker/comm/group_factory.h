// How a rank gets its process groups without knowing whether its peers are threads or processes.
// Implementations: threads/hub.h, gloo/gloo_factory.h; NCCL's stands beside them. A group of one
// member is a SelfGroup whatever the factory.
#pragma once

#include <memory>

#include "common/base/status.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

class GroupFactory {
 public:
  virtual ~GroupFactory() = default;
  // Blocks until every member has made the same call, at most config.connect_timeout. A name may be
  // used once (per job and epoch). kInvalidArgument: the spec is no group; kDeadlineExceeded: names
  // the member that did not come; kUnavailable: the network refused. Thread-safe.
  virtual StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) = 0;
};

// A name, at least one member, no member twice, my_index one of them.
Status CheckSpec(const GroupSpec& spec);

}  // namespace mt::comm
