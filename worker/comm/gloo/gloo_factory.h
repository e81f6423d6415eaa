// Groups whose ranks are processes, over TCP. One factory per rank: it owns the thread that moves
// the data of all its groups, so it outlives them.
#pragma once

#include <memory>

#include "worker/comm/group_factory.h"
#include "worker/comm/rendezvous_store.h"

namespace mt::comm {

// `store` is shared by all ranks of the epoch and outlives the factory. kInvalidArgument: the
// interface or address is not one of this host. Sets SIGPIPE to ignored where it has its default
// action: Gloo writes to sockets whose peer may be gone.
StatusOr<std::unique_ptr<GroupFactory>> MakeGlooFactory(RendezvousStore* store, CommConfig config);

}  // namespace mt::comm
