// Products by kernels of our own, for Hopper: with the epilogues of cuBLASLt, whose kernels let the
// tensor cores wait for them, and with those that it does not have: the input gradient of a layer
// behind GELU, times GELU's slope, with the column sums that are the bias gradient of the layer in
// front; SwiGLU and its gradients (kernels/cuda/README.md, "Own products"). Terms of product_key.h.
#pragma once

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/product.h"

namespace mt::kernels::cuda {

// Whether this device has a kernel for `key`.
bool HasOwnProduct(const DeviceLimits& limits, const ProductKey& key);

// Of the workspace. kGeluGradBias: vectors [m] of sums over some tokens each; else 0.
int64_t OwnProductScratchBytes(const ProductKey& key);

// Enqueues it. `bias_mode` and `workspace` (OwnProductScratchBytes) are kGeluGradBias's: its `bias`
// [m] in f32 is written or added to; sums are of values before rounding, in an order that depends
// on the shape alone.
void RunOwnProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                   const ProductOperands& operands, GradMode bias_mode, const Workspace& workspace);

}  // namespace mt::kernels::cuda
