// Tile sizes, shared-memory layout and host-side launches of the custom GEMM kernels for Hopper
// (compute capability 9.0). Terms of gemm_key.h: m features, n tokens, k inner size. The
// kernel's loop is in hopper_gemm.cuh.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/gemm/cublas_gemm.h"

namespace mt::kernels::cuda {

// Tile of a thread block, and inner size of a stage.
inline constexpr int kTileFeatures = 128, kTileTokens = 192, kStageInner = 64;
// A box of TMA: 64 elements are 128 bytes, the width of its swizzle.
inline constexpr int kHalfTileTokens = kTileTokens / 2, kBoxFeatures = 64;
// Thread blocks of a cluster: neighbours in features that share their tokens.
inline constexpr int kClusterBlocks = 2;
inline constexpr int kElementBytes = 2;
// Shared memory of a thread block: a ring of stages of operands, and quarters of a result tile.
inline constexpr int kRingStages = 4, kTileQuarters = 4;
inline constexpr int kBoxRowBytes = kBoxFeatures * kElementBytes;
inline constexpr int kStageBytesOfA = kTileFeatures * kStageInner * kElementBytes;
inline constexpr int kStageBytes = kStageBytesOfA + kTileTokens * kStageInner * kElementBytes;
inline constexpr int kQuarterBytes = kBoxFeatures * kHalfTileTokens * kElementBytes;
inline constexpr int kBoxAlignment = 1024;  // bytes, of 128-byte-swizzled tiles
inline constexpr int kGemmSharedBytes =
    kRingStages * kStageBytes + kTileQuarters * kQuarterBytes + kBoxAlignment;

// Partition of a call into tiles: `pairs` of tiles along the features (one per cluster), in bands
// of `band` pairs; within a band the features run fastest.
struct TileCut {
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

// One call: the arguments that every kernel takes, and the number of clusters that it runs on.
struct HopperGemm {
  TileCut cut;
  OperandMaps operands;
  int clusters = 0;
};

// Partitions a GEMM for this device (or for key.sms SMs of it) and encodes its operands' tensor
// maps.
HopperGemm HopperGemmOf(const DeviceLimits& limits, const GemmKey& key,
                        const GemmOperands& operands);

// Tensor maps of a [tokens, features] result, or an input of that shape, in boxes of a quarter
// tile; and of half 0 or 1 of the features of a [tokens, 2 features] matrix.
CUtensorMap ResultMapOf(const GemmKey& key, const void* data, int64_t features);
CUtensorMap HalfMapOf(const GemmKey& key, const void* data, int64_t features, int half);

// Number of tiles along the tokens.
int TokenTilesOf(const GemmKey& key);

// Enqueue the kernel of one group of epilogues: kBias, kGeluAux and kGeluAuxBias; kSwigluAux;
// kSwigluGrad; kGeluGradBias, which leaves the sums of each feature over the tokens of a tile in
// `partials` [TokenTilesOf(key), m].
void LaunchBiasGeluGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                        const GemmOperands& operands);
void LaunchSwigluGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                      const GemmOperands& operands);
void LaunchSwigluGradGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                          const GemmOperands& operands);
void LaunchGeluGradGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                        const GemmOperands& operands, float* partials);

}  // namespace mt::kernels::cuda
