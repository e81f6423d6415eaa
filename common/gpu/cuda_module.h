// The CUDA backend as a program without CUDA sees it: where its module lies, and which GPUs it runs
// on. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/status.h"

namespace mt::gpu {

inline constexpr char kCudaModuleName[] = "libmt_cuda.so";

// The module of the programs in `folder`: beside them, or in ../lib. NotFound: it is in neither
// place; the message names both and says what to do.
StatusOr<std::string> FindCudaModule(const std::string& folder);

// Why the module cannot run on a GPU of this compute capability; empty: it can. It has code for 8.x
// (sm_80) and for 9.0 (sm_90a, which runs on no other). `gpu` names the GPU, as "GPU 0 (GPU-8c5c)".
std::string CapabilityFault(const std::string& gpu, int major, int minor);

// Why the module cannot work with these versions, as cudnnGetVersion() and cublasLtGetVersion()
// tell them; empty: it can.
std::string LibraryFault(size_t cudnn, size_t cublas);

}  // namespace mt::gpu
