// Makes the groups of a rank's GPU over NCCL.
#pragma once

#include <memory>

#include "kernels/core/device.h"
#include "worker/comm/comm_config.h"
#include "worker/comm/group_factory.h"
#include "worker/comm/nccl/nccl_library.h"
#include "worker/comm/rendezvous_store.h"

namespace mt::comm {

// Groups whose calls enqueue on streams of `device`. Create blocks until all members have come, and
// fails with kDeadlineExceeded after config.connect_timeout; with kFailedPrecondition where members
// have different versions of NCCL or two have the same GPU. Store, library and device outlive the
// factory, and the factory its groups.
std::unique_ptr<GroupFactory> MakeNcclFactory(RendezvousStore* store, CommConfig config,
                                              const NcclLibrary* library, kernels::Device* device);

}  // namespace mt::comm
