// Makes groups over copies where the members' GPUs can write each other's memory, and others where
// they cannot.
#pragma once

#include <memory>

#include "kernels/core/device.h"
#include "kernels/ops/vector.h"
#include "worker/comm/comm_config.h"
#include "worker/comm/group_factory.h"

namespace mt::comm {

// All are used by the factory and its groups, and must outlive them.
struct CopyFactoryArgs {
  GroupFactory* host = nullptr;       // of host memory, for words between the hosts
  GroupFactory* otherwise = nullptr;  // of the device's memory, where copies do not do
  kernels::Device* device = nullptr;
  const kernels::VectorOps* vector = nullptr;
  CommConfig config;
  // Ends calls that take longer than config.op_timeout, by a thread of the factory. Not for devices
  // of a world whose order is drawn.
  bool watched = true;
};

// Create blocks until all members have come, and decides alike on all of them: copies if all are on
// one host, each reaches all others and at most CopyGroup::kMostMembers are there. Where a host
// refuses, it says why, once. Of a spec of its own kind alone (GroupSpec::own_kind) there is no
// other group: nullptr.
std::unique_ptr<GroupFactory> MakeCopyFactory(CopyFactoryArgs args);

}  // namespace mt::comm
