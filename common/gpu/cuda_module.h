// The CUDA backend as seen by programs that do not link CUDA: where its module lies, and on which
// GPUs and library versions it runs. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/status.h"

namespace mt::gpu {

inline constexpr char kCudaModuleName[] = "libmt_cuda.so";

// Path of the module for programs that lie in `folder`: beside them, or in ../lib. NotFound where
// neither exists; the message names both places and says how to get the module. Touches the file
// system.
StatusOr<std::string> FindCudaModule(const std::string& folder);

// Why the module cannot run on a GPU of this compute capability, as text for people; "" where it
// can. It contains code for 8.x (sm_80) and for 9.0 (sm_90a, which runs on no other). `gpu` names
// the GPU in the text: "GPU 0 (GPU-8c5c)".
std::string CapabilityFault(const std::string& gpu, int major, int minor);

// Why the module cannot work with these library versions, in the encoding of cudnnGetVersion() and
// cublasLtGetVersion(); "" where it can.
std::string LibraryFault(size_t cudnn, size_t cublas);

}  // namespace mt::gpu
