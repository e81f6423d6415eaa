// The core types that are named as a way out have kernels that every x86-64 processor of the last
// ten years executes; OpenBLAS takes what the variable says where the processor can execute it.
#include "worker/rank/check_blas.h"

#include <cstdio>
#include <string>

#include "kernels/cpu/cpu_backend.h"
#include "worker/failure/failure.h"
#include "worker/rank/outcome.h"

namespace mt::rank {

Status BlasVerdict(const kernels::cpu::BlasCalls& calls) {
  kernels::cpu::InitOpenBlas();
  const std::string fault = kernels::cpu::CheckBlas(calls);
  if (fault.empty()) return OkStatus();
  const std::string core_type = kernels::cpu::OpenBlasCoreType();
  const char* const other = core_type == "Haswell" ? "Nehalem" : "Haswell";
  return failure::WithCause(
      base::FailedPrecondition(
          "{} multiplies wrongly on this processor with its kernels for {} ({}): start with "
          "OPENBLAS_CORETYPE={} in the environment, or install a newer OpenBLAS",
          kernels::cpu::OpenBlasVersion(), core_type, fault, other),
      failure::Cause::kHardware);
}

int RunCheckBlas() {
  const Status verdict = BlasVerdict();
  const std::string line = verdict.ok() ? kernels::cpu::OpenBlasVersion() + ", kernels for " +
                                              kernels::cpu::OpenBlasCoreType()
                                        : base::Message(verdict);
  std::printf("%s\n", line.c_str());
  return ExitCodeOf(verdict);
}

}  // namespace mt::rank
