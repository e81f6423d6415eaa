// Custom GEMM kernels for Hopper: with epilogues that cuBLASLt also has, whose kernels leave the
// tensor cores idle during the epilogue, and with epilogues that it lacks: the input gradient of a
// layer behind GELU, times GELU's slope, with the column sums that are the bias gradient of the
// layer in front; SwiGLU and its gradients (kernels/cuda/README.md, "Own products"). Terms of
// product_key.h.
#pragma once

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/product/product.h"

namespace mt::kernels::cuda {

// Returns whether this device has a kernel for `key`: compute capability 9.0, 16-bit operands, rows
// of whole 16-byte vectors.
bool HasOwnProduct(const DeviceLimits& limits, const ProductKey& key);

// Bytes of workspace: for kGeluGradBias partial sums [token tiles, m] in f32, otherwise 0.
int64_t OwnProductScratchBytes(const ProductKey& key);

// Enqueues the GEMM; requires HasOwnProduct. `bias_mode` and `workspace` (OwnProductScratchBytes)
// are used by kGeluGradBias only, whose `bias` [m] in f32 is overwritten or added to. Its sums are
// of the values before rounding, in an order that depends on the shape alone.
void RunOwnProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                   const ProductOperands& operands, GradMode bias_mode, const Workspace& workspace);

}  // namespace mt::kernels::cuda
