// Groups whose ranks are processes, connected over TCP by Gloo. There is one factory per rank; it
// owns the I/O thread that serves all its groups, so it must outlive them.
#pragma once

#include <memory>

#include "worker/comm/group_factory.h"
#include "worker/comm/rendezvous_store.h"

namespace mt::comm {

// Makes the factory. `store` is shared by all ranks of the epoch and must outlive the factory.
// kInvalidArgument if the interface or address is not one of this host. Sets SIGPIPE to ignored if
// it has its default action, because Gloo writes to sockets whose peer may be gone.
StatusOr<std::unique_ptr<GroupFactory>> MakeGlooFactory(RendezvousStore* store, CommConfig config);

}  // namespace mt::comm
