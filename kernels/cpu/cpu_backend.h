// The CPU backend: the readable, deterministic reference of every op in every float type, and the
// default where no GPU is. Matrix products are OpenBLAS's; everything else is plain C++ that the
// compiler vectorises. Sums run in a fixed order for a given thread count, so the same binary, core
// type and thread count give the same bits.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/ops/backend.h"

namespace mt::kernels::cpu {

struct CpuConfig {
  int num_threads = 1;  // of this backend's loops and matrix products, the caller's included
};

// Fails (kFailedPrecondition) where this processor lacks the instructions the kernels were built
// for (MT_CPU_ARCH). Sets OpenBLAS itself to one thread, process-wide: products are split over the
// backend's own threads. Several backends may live in one process (ranks as threads); the ops of
// one may be called from several threads, which then share its threads.
StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuConfig& config);

// The core type OpenBLAS runs with ("Haswell"), as OPENBLAS_CORETYPE names it.
std::string OpenBlasCoreType();

}  // namespace mt::kernels::cpu
