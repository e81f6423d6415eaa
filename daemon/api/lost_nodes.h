// Whom an operation waits for without hearing anything: an operation whose job has ranks on a node
// that is silent or lost ends only when the node is back or declared dead, and its user is told so.
// Added to answers; the store does not keep it. Not thread-safe (the core's thread).
#pragma once

#include "daemon/ledger/ledger.h"
#include "daemon/membership/lease_table.h"

namespace mt::daemon {

// Fills in lost_nodes, and says in `progress` since when each has not been heard and what to do.
// Nothing for an operation that is done, or whose job's nodes are all heard.
void NameLostNodes(Ledger* ledger, const LeaseTable& leases, v1::Operation* operation);

}  // namespace mt::daemon
