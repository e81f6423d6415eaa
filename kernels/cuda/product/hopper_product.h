// Tile sizes, shared-memory layout and host-side launches of the custom GEMM kernels for Hopper
// (compute capability 9.0). Terms of product_key.h: m features, n tokens, k inner size. The
// kernel's loop is in hopper_product.cuh.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/product/product.h"

namespace mt::kernels::cuda::hopper {

inline constexpr int kFeatures = 128, kTokens = 192,
                     kInner = 64;  // tile of a thread block, and inner size of a stage
inline constexpr int kHalfTokens = kTokens / 2,
                     kBoxFeatures = 64;  // 64 elements are 128 bytes, the width of TMA's swizzle
inline constexpr int kCluster =
    2;  // thread blocks of a cluster: neighbours in features that share their tokens
inline constexpr int kElement = 2;  // bytes
// Shared memory of a thread block: a ring of stages of operands, and quarters of a result tile.
inline constexpr int kStages = 4, kQuarters = 4;
inline constexpr int kRow = kBoxFeatures * kElement;  // bytes
inline constexpr int kBytesOfA = kFeatures * kInner * kElement;
inline constexpr int kStageBytes = kBytesOfA + kTokens * kInner * kElement;
inline constexpr int kQuarterBytes = kBoxFeatures * kHalfTokens * kElement;
inline constexpr int kAlignment = 1024;  // bytes, of 128-byte-swizzled tiles
inline constexpr int kSharedBytes = kStages * kStageBytes + kQuarters * kQuarterBytes + kAlignment;

// Partition of a call into tiles: `pairs` of tiles along the features (one per cluster), in bands
// of `band` pairs; within a band the features run fastest.
struct Cut {
  int pairs = 0, token_tiles = 0, band = 0;
  int steps = 0;  // stages per tile
  int features = 0;
};

// TMA tensor maps of the operands.
struct OperandMaps {
  CUtensorMap a, b;
  CUtensorMap
      up{};  // kSwigluAux: the second half of A's features (up); `a` is then the first (gate)
};

// Arguments that every kernel takes.
struct Call {
  Cut cut;
  OperandMaps operands;
  int clusters = 0;
};

// Partitions a GEMM for this device (or for key.sms SMs of it) and encodes its operands' tensor
// maps.
Call CallOf(const DeviceLimits& limits, const ProductKey& key, const ProductOperands& operands);

// Tensor maps of a [tokens, features] result, or an input of that shape, in boxes of a quarter
// tile; and of half 0 or 1 of the features of a [tokens, 2 features] matrix.
CUtensorMap ResultMapOf(const ProductKey& key, const void* data, int64_t features);
CUtensorMap HalfMapOf(const ProductKey& key, const void* data, int64_t features, int half);

// Number of tiles along the tokens.
int TokenTilesOf(const ProductKey& key);

// Enqueue the kernel of one group of epilogues: kBias, kGeluAux and kGeluAuxBias; kSwigluAux;
// kSwigluGrad; kGeluGradBias, which leaves the sums of each feature over the tokens of a tile in
// `partials` [TokenTilesOf(key), m].
void LaunchStoreProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                        const ProductOperands& operands);
void LaunchSwigluProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                         const ProductOperands& operands);
void LaunchSwigluGradProduct(const Stream& stream, const DeviceLimits& limits,
                             const ProductKey& key, const ProductOperands& operands);
void LaunchGeluGradProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                           const ProductOperands& operands, float* partials);

}  // namespace mt::kernels::cuda::hopper
