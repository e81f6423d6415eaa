// The job that a request names, by uid or by namespace and name. Not thread-safe (the core's
// thread).
#pragma once

#include "common/base/status.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class JobRef;
}

namespace mt::daemon {

// The newest job of that name where no uid is given, or, where with_run asks for it, the newest
// that has a run, if there is one. NotFound (UNKNOWN_JOB) proposes the nearest
// name; InvalidArgument where neither is given.
StatusOr<v1::StoredJob*> FindJob(Ledger* ledger, const v1::JobRef& ref);

}  // namespace mt::daemon
