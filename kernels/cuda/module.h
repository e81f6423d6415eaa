// The CUDA backend is a shared module, libmt_cuda.so, that a program loads only when it is asked
// for a GPU: CPU ranks start without CUDA's libraries, and the same binaries run on hosts without a
// driver. The module exports one C symbol.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/ops/backend.h"

namespace mt::kernels::cuda {

// Identifies what a program and a module were compiled from: the op contracts and this compiler's
// class layout. A module of another version is refused, never called. Raise it with every change to
// kernels/ops or kernels/core that changes a class or a struct.
#define MT_CUDA_MODULE_VERSION "mt_cuda 12, " __VERSION__

struct CudaConfig {
  int device = 0;  // ordinal among the devices this process sees
  // Selects the GPU with this UUID ("GPU-5c4e...", as NVML and nvidia-smi print it) whatever its
  // ordinal; empty: `device` selects.
  std::string uuid;
  // Shared memory of a thread block in bytes, to compute as a smaller GPU does; 0: what the GPU
  // has.
  int shared_bytes = 0;
  std::string module_path;  // empty: libmt_cuda.so beside the program, then in ../lib
};

// The reason why no backend was made.
struct BackendFault {
  std::string text;
  bool out_of_memory = false;  // the GPU has no room even for a context and the libraries
};

// The exported function. Makes the backend of the config's GPU, which the caller owns, or returns
// nullptr and fills *fault. `version` is the caller's MT_CUDA_MODULE_VERSION and is checked first.
// Never throws.
using MakeBackendFunction = Backend*(const char* version, const CudaConfig& config,
                                     BackendFault* fault);
inline constexpr char kMakeBackendSymbol[] = "mt_cuda_make_backend";

// Loads the module (once per process; it stays loaded) and makes a backend. kNotFound: no module
// file; kResourceExhausted: the GPU has no memory left for a context; kFailedPrecondition: the
// module is of another version, or there is no usable GPU. The message says what to do.
StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(const CudaConfig& config);

}  // namespace mt::kernels::cuda
