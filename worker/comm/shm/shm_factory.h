// Groups over shared memory where all members can share some, and another factory's groups where
// they cannot: on several hosts, in containers that do not see each other's processes, and where
// the system refuses the memory. The members agree on it through the store.
#pragma once

#include <memory>
#include <string>

#include "worker/comm/group_factory.h"
#include "worker/comm/rendezvous_store.h"

namespace mt::comm {

// Makes the factory. `store` is shared by all ranks of the epoch; `otherwise` makes the groups
// whose members cannot share memory. Both must outlive the factory. Every rank must use the same
// kind of factory. `proc`: where the proc file system is.
std::unique_ptr<GroupFactory> MakeShmFactory(RendezvousStore* store, CommConfig config,
                                             GroupFactory* otherwise, std::string proc = "/proc");

}  // namespace mt::comm
