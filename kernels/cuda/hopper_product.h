// How products of our own are cut on Hopper (compute capability 9.0), and the host's side of their
// launches. Terms of product_key.h: m features, n tokens, k inputs.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/product.h"

namespace mt::kernels::cuda::hopper {

inline constexpr int kFeatures = 128, kTokens = 192, kInner = 64;   // of a block's tile, and stage
inline constexpr int kHalfTokens = kTokens / 2, kBoxFeatures = 64;  // 64 elements: 128 bytes
inline constexpr int kCluster = 2;  // blocks, neighbours in features, that share their tokens
inline constexpr int kElement = 2;  // bytes
// Shared memory of a block: stages of operands, quarters of a result's tile.
inline constexpr int kStages = 4, kQuarters = 4;
inline constexpr int kRow = kBoxFeatures * kElement;  // bytes
inline constexpr int kBytesOfA = kFeatures * kInner * kElement;
inline constexpr int kStageBytes = kBytesOfA + kTokens * kInner * kElement;
inline constexpr int kQuarterBytes = kBoxFeatures * kHalfTokens * kElement;
inline constexpr int kAlignment = 1024;  // of swizzled tiles
inline constexpr int kSharedBytes = kStages * kStageBytes + kQuarters * kQuarterBytes + kAlignment;

// How a call is cut: pairs of tiles, numbered in bands of `band` in features, in a band features
// first.
struct Cut {
  int pairs = 0, token_tiles = 0, band = 0;
  int steps = 0;  // stages a tile
  int features = 0;
};

struct OperandMaps {
  CUtensorMap a, b;
  CUtensorMap up{};  // of kSwigluAux: the second half of A's features, `a` being the first
};

// What every kernel gets.
struct Call {
  Cut cut;
  OperandMaps operands;
  int clusters = 0;
};

Call CallOf(const DeviceLimits& limits, const ProductKey& key, const ProductOperands& operands);

// [tokens, features] of a result, or of what is shaped like it, in quarters of a tile; and half 0
// or 1 of the features of [tokens, 2 features].
CUtensorMap ResultMapOf(const ProductKey& key, const void* data, int64_t features);
CUtensorMap HalfMapOf(const ProductKey& key, const void* data, int64_t features, int half);

int TokenTilesOf(const ProductKey& key);

// Of kBias, kGeluAux, kGeluAuxBias; of kSwigluAux; of kSwigluGrad; of kGeluGradBias: sums of
// features over the tokens of a tile go to `partials` [TokenTilesOf(key), m].
void LaunchStoreProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                        const ProductOperands& operands);
void LaunchSwigluProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                         const ProductOperands& operands);
void LaunchSwigluGradProduct(const Stream& stream, const DeviceLimits& limits,
                             const ProductKey& key, const ProductOperands& operands);
void LaunchGeluGradProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                           const ProductOperands& operands, float* partials);

}  // namespace mt::kernels::cuda::hopper
