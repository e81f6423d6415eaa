// Whether the BLAS of this process multiplies rightly on this processor
// (kernels/cpu/blas_check.h). An agent asks `mt-rank --check-blas` before it offers CPU slots; a
// standalone run on the CPU asks itself.
#pragma once

#include "common/base/status.h"
#include "kernels/cpu/blas_check.h"

namespace mt::rank {

// kFailedPrecondition, with the cause kHardware: it does not; the message names the library, the
// processor's kernels in it, the product that is wrong, and what to do.
Status BlasVerdict(const kernels::cpu::BlasCalls& calls = {});

// Prints the verdict to stdout, one line, and returns the exit code: kExitDone or kExitDevice
// (common/control/rank_exit_codes.h).
int RunCheckBlas();

}  // namespace mt::rank
