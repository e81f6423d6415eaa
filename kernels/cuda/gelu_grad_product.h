// The input gradient of a layer behind GELU, times GELU's slope, with the column sums that are the
// bias gradient of the layer in front: d = (a b) gelu'(aux), bias = sums of d. One own kernel for
// Hopper in place of a product whose epilogue works while the tensor cores wait, and a kernel that
// reads d again (docs/gpu-experiments.md, E2). Terms of product_key.h: m features, n tokens.
#pragma once

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/product.h"

namespace mt::kernels::cuda {

// Whether this device has the kernel for `key`, of epilogue kGeluGradBias.
bool HasGeluGradProduct(const DeviceLimits& limits, const ProductKey& key);

// Of the workspace: vectors [m] of sums over some tokens each.
int64_t GeluGradPartialBytes(const ProductKey& key);

// Enqueues it. `bias` [m] in f32 is written or added to; sums are of values before rounding, in an
// order that depends on the shape alone. `workspace`: GeluGradPartialBytes.
void RunGeluGradProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                        const ProductOperands& operands, GradMode mode, const Workspace& workspace);

}  // namespace mt::kernels::cuda
