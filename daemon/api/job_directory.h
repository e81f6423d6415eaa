// Which directory of checkpoints a submitted job gets. Decided once, when it is submitted, and
// stored in its spec: whoever reads it later reads checkpoint.directory there. Not thread-safe (the
// core's thread).
#pragma once

#include "common/spec/fault.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::daemon {

// Sets checkpoint.directory of a completed job (spec::ValidateContext::of_service) whose submission
// does not name it. In this order: the one chosen for that namespace's jobs of that name before;
// the job's name alone, which earlier versions chose, if that namespace's job of that name made
// what is there, as the store and its tombstones tell; NAMESPACE/NAME. Faults: the namespace is
// called like a directory that is another job's, or NAMESPACE/NAME is another job's, who named it.
[[nodiscard]] spec::Faults ChooseDirectory(const Ledger& ledger, v1::JobSpec* spec);

// Whether a job may have the directory that its submission names. Fault: that is the name of a
// namespace whose jobs have their directories in it.
[[nodiscard]] spec::Faults CheckGivenDirectory(const Ledger& ledger, const v1::JobSpec& spec);

}  // namespace mt::daemon
