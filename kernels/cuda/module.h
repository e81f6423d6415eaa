// The CUDA backend is a shared module, libmt_cuda.so, that a program loads when it is asked for a
// GPU: CPU ranks start without CUDA's libraries, and the same binaries run on hosts without a
// driver. The module exports one C symbol.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/ops/backend.h"

namespace mt::kernels::cuda {

// What both sides were built from: the op contracts and this compiler's layout of their classes. A
// module of another version is refused, never called. Raised with every change to kernels/ops or
// kernels/core that changes a class or a struct.
#define MT_CUDA_MODULE_VERSION "mt_cuda 4, " __VERSION__

struct CudaConfig {
  int device = 0;  // ordinal among the devices this process sees
  // "GPU-5c4e...": that GPU, whatever its ordinal; as NVML and nvidia-smi name it.
  std::string uuid;
  // Of a block, at most: fewer than the GPU has, to compute as a smaller one does; 0: what it has.
  int shared_bytes = 0;
  std::string module_path;  // empty: libmt_cuda.so beside the program, then in ../lib
};

// Why there is no backend.
struct BackendFault {
  std::string text;
  bool out_of_memory = false;  // the GPU has no room even for a context and the libraries
};

// The exported symbol: makes the backend of the config's GPU, which the caller deletes, or returns
// null and writes why. `version` is the caller's MT_CUDA_MODULE_VERSION; it is looked at first.
using MakeBackendFunction = Backend*(const char* version, const CudaConfig& config,
                                     BackendFault* fault);
inline constexpr char kMakeBackendSymbol[] = "mt_cuda_make_backend";

// Loads the module (once per process; it stays loaded) and makes a backend. kNotFound: no module;
// kResourceExhausted: the GPU's memory is taken; kFailedPrecondition: the module does not fit, or
// there is no usable GPU; the message says what to do.
StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(const CudaConfig& config);

}  // namespace mt::kernels::cuda
