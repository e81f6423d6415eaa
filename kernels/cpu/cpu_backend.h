// The CPU backend: the readable, deterministic reference of every op in every float type, and the
// default on nodes without a GPU. GEMMs are OpenBLAS's; everything else is plain C++ that the
// compiler vectorises. Sums have a fixed order for a given thread count, so the same binary,
// OpenBLAS core type and thread count give the same bits.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/ops/backend.h"

namespace mt::kernels::cpu {

struct CpuConfig {
  int num_threads = 1;  // threads of this backend's loops and GEMMs, the caller included; 1 to 1024
};

// Makes a CPU backend. kFailedPrecondition: this processor lacks instructions that the kernels were
// compiled for (MT_CPU_ARCH); kInvalidArgument: num_threads is out of range. Sets OpenBLAS to one
// thread for the whole process, because GEMMs are split over the backend's own threads. Several
// backends may live in one process (ranks as threads); several threads may call the ops of one
// backend and then share its threads.
StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuConfig& config);

// Returns the core type that OpenBLAS selected ("Haswell"), as OPENBLAS_CORETYPE names it.
std::string OpenBlasCoreType();

}  // namespace mt::kernels::cpu
