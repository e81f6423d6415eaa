// Creates a rank's process groups without the caller knowing whether its peers are threads or
// processes. Implementations: threads/hub.h and gloo/gloo_factory.h. A group of one member is a
// SelfGroup with every factory.
#pragma once

#include <memory>

#include "common/base/status.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

class DeviceWatch;

class GroupFactory {
 public:
  virtual ~GroupFactory() = default;
  // Creates a group. Blocks until every member has made the same call, at most
  // config.connect_timeout. A name may be used once per job and epoch. kInvalidArgument: the spec
  // is not a valid group; kDeadlineExceeded: names the member that did not come; kUnavailable: the
  // network failed. Thread-safe.
  virtual StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) = 0;
  // What ends calls of its groups that take too long, for others whose work on the device must not
  // wait for ever either; nullptr: nothing does. Lives as long as the factory.
  virtual DeviceWatch* watch() { return nullptr; }
};

// Groups of words of more members are joined as a tree (gloo/tree_group.h), on one host too.
inline constexpr int kLargestMesh = 16;

// OK if the spec has a name, at least one member, no member twice, and my_index is one of them;
// else kInvalidArgument.
Status CheckSpec(const GroupSpec& spec);

}  // namespace mt::comm
