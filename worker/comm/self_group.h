// A group of one member: every operation is a copy or nothing. It lets one-rank runs make the same
// calls as all others.
#pragma once

#include <memory>

#include "worker/comm/process_group.h"

namespace mt::comm {

// `device`, if given, copies in stream order and must outlive the group; without it pointers are to
// host memory. CHECKs that the spec has one member.
std::unique_ptr<ProcessGroup> MakeSelfGroup(GroupSpec spec, CommConfig config,
                                            kernels::Device* device = nullptr);

}  // namespace mt::comm
