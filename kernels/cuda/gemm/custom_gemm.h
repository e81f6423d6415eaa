// Custom GEMM kernels for Hopper: with epilogues that cuBLASLt also has, whose kernels leave the
// tensor cores idle during the epilogue, and with epilogues that it lacks: the input gradient of a
// layer behind GELU, times GELU's slope, with the column sums that are the bias gradient of the
// layer in front; SwiGLU and its gradients (kernels/cuda/README.md, "Custom GEMMs"). Terms of
// gemm_key.h.
#pragma once

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/gemm/cublas_gemm.h"

namespace mt::kernels::cuda {

// Returns whether this device has a kernel for `key`: compute capability 9.0, 16-bit operands, rows
// of whole 16-byte vectors.
bool HasCustomGemm(const DeviceLimits& limits, const GemmKey& key);

// Bytes of workspace: for kGeluGradBias partial sums [token tiles, m] in f32, otherwise 0.
int64_t CustomGemmScratchBytes(const GemmKey& key);

// Enqueues the GEMM; requires HasCustomGemm. `bias_mode` and `workspace` (CustomGemmScratchBytes)
// are used by kGeluGradBias only, whose `bias` [m] in f32 is overwritten or added to. Its sums are
// of the values before rounding, in an order that depends on the shape alone.
void RunCustomGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                   const GemmOperands& operands, GradMode bias_mode, const Workspace& workspace);

}  // namespace mt::kernels::cuda
