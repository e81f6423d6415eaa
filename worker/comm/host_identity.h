// Which ranks are on one host: those of equal identity look for ways to share memory, processes'
// (worker/comm/shm) and GPUs' (worker/comm/copies, links between stages), and NCCL is told the same
// (worker/rank/environment.cc). A host is a node of the cluster, not a machine: two nodes on one
// machine communicate as two machines do.
#pragma once

#include <string>
#include <string_view>

namespace mt::comm {

// The identity of the host of a rank on this machine: "NODE/BOOT" of a node's; without a node, as
// standalone, the id of the machine's boot. "" where neither is known: such a rank shares no memory
// with other processes. It has no blanks, since names of nodes have none.
std::string HostIdentity(std::string_view node = {});

}  // namespace mt::comm
