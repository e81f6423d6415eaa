// What a store becomes at every start: its cluster's identity, where it has none yet, and the next
// term (docs/design/control-plane.md#terms).
#pragma once

#include "common/base/status.h"

namespace mt::daemon {

class Authority;
class Ledger;

// Raises the term, which the next commit makes durable: nothing may be served before. A coordinator
// that was superseded stays so, unless a restore was declared since. FailedPrecondition where there
// are no more terms.
Status BeginTerm(Ledger* ledger, Authority* authority);

// A declared restore: this store is the one to obey. Raises the term beyond every other, and
// nothing is placed before the nodes have answered (keeper/restore_gate.h). To be followed by a
// commit before anything is served.
Status BeginRestore(Ledger* ledger, Authority* authority);

}  // namespace mt::daemon
