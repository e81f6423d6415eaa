// A group of one: every operation is a copy or nothing, through the device, so that one-rank runs
// go through the same calls as all others.
#pragma once

#include <memory>

#include "worker/comm/process_group.h"

namespace mt::comm {

// `device`, where given, copies in stream order and outlives the group; without it memory is the
// host's. The spec has one member.
std::unique_ptr<ProcessGroup> MakeSelfGroup(GroupSpec spec, CommConfig config,
                                            kernels::Device* device = nullptr);

}  // namespace mt::comm
