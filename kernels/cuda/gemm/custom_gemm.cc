// The host side of the custom GEMM kernels: which GEMMs they cover, TMA tensor maps (CUDA driver
// API, cuTensorMapEncodeTiled), the partition into tiles, and the second stage of kGeluGradBias's
// column sums.
#include "kernels/cuda/gemm/custom_gemm.h"

#include <algorithm>

#include <cuda_runtime_api.h>

#include "common/base/check.h"
#include "common/base/math.h"
#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/device/rows.h"
#include "kernels/cuda/gemm/hopper_gemm.h"

namespace mt::kernels::cuda {
namespace {

// Bytes of weights per band, which stay in the L2 cache while all tokens pass by.
constexpr int64_t kBandBytes = int64_t{8} << 20;

// A [rows, columns] matrix of 16-bit elements, columns contiguous, rows `stride` elements apart.
struct Matrix {
  const void* data;
  int64_t rows, columns, stride;
};

// Encodes a tensor map in boxes of `box_rows` x 64, with 128-byte swizzle; outside the matrix TMA
// reads zeros.
CUtensorMap MapOf(const GemmKey& key, const Matrix& matrix, int box_rows) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.columns),
                              static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.stride * kElementBytes)};
  const cuuint32_t box[] = {kBoxFeatures, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
  const CUresult status = Driver().tensor_map_encode_tiled(
      &map,
      key.in == DType::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      2, const_cast<void*>(matrix.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(status == CUDA_SUCCESS) << "cuTensorMapEncodeTiled: " << static_cast<int>(status) << " for "
                                << ToText({.form = true, .gemm = key});
  return map;
}

}  // namespace

int TokenTilesOf(const GemmKey& key) {
  return static_cast<int>(base::CeilDiv(key.n, int64_t{kTileTokens}));
}

CUtensorMap ResultMapOf(const GemmKey& key, const void* data, int64_t features) {
  return MapOf(key, {data, key.n, features, features}, kHalfTileTokens);
}

CUtensorMap HalfMapOf(const GemmKey& key, const void* data, int64_t features, int half) {
  const char* const first = static_cast<const char*>(data) + half * features * kElementBytes;
  return MapOf(key, {first, key.n, features, 2 * features}, kHalfTileTokens);
}

HopperGemm HopperGemmOf(const DeviceLimits& limits, const GemmKey& key,
                        const GemmOperands& operands) {
  HopperGemm call;
  TileCut& cut = call.cut;
  cut.pairs = static_cast<int>(base::CeilDiv(key.m, int64_t{kTileFeatures * kClusterBlocks}));
  cut.token_tiles = TokenTilesOf(key);
  cut.band = static_cast<int>(
      std::max<int64_t>(1, kBandBytes / (kTileFeatures * kClusterBlocks * key.k * kElementBytes)));
  cut.steps = static_cast<int>(base::CeilDiv(key.k, int64_t{kStageInner}));
  cut.features = static_cast<int>(key.m);
  call.operands.b = MapOf(key, {operands.b, key.n, key.k, key.k}, kHalfTileTokens);
  if (key.epilogue == Epilogue::kSwigluAux) {
    const int64_t half = key.m / 2;
    const char* const up = static_cast<const char*>(operands.a) + half * key.k * kElementBytes;
    call.operands.a = MapOf(key, {operands.a, half, key.k, key.k}, kTileFeatures / 2);
    call.operands.up = MapOf(key, {up, half, key.k, key.k}, kTileFeatures / 2);
  } else if (key.transpose_a) {
    call.operands.a = MapOf(key, {operands.a, key.m, key.k, key.k}, kTileFeatures);
  } else {
    call.operands.a = MapOf(key, {operands.a, key.k, key.m, key.m}, kStageInner);
  }
  const int64_t sms = key.sms == 0 ? limits.num_sms : std::min(key.sms, limits.num_sms);
  call.clusters = static_cast<int>(
      std::min<int64_t>(sms / kClusterBlocks, int64_t{cut.pairs} * int64_t{cut.token_tiles}));
  return call;
}

bool HasCustomGemm(const DeviceLimits& limits, const GemmKey& key) {
  constexpr int64_t kMost = int64_t{1} << 30;  // coordinates and tile numbers are 32-bit
  return limits.major == 9 && limits.minor == 0 && limits.shared_bytes >= kGemmSharedBytes &&
         MayBeCustom(key) && key.m < kMost && key.n < kMost && key.k < kMost &&
         (key.m / kTileFeatures + 2) * (key.n / kTileTokens + 1) < kMost &&
         (key.sms == 0 || key.sms >= kClusterBlocks);
}

int64_t CustomGemmScratchBytes(const GemmKey& key) {
  if (key.epilogue != Epilogue::kGeluGradBias) return 0;
  return TokenTilesOf(key) * key.m * int64_t{sizeof(float)};
}

void RunCustomGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                   const GemmOperands& operands, GradMode bias_mode, const Workspace& workspace) {
  switch (key.epilogue) {
    case Epilogue::kSwigluAux:
      return LaunchSwigluGemm(stream, limits, key, operands);
    case Epilogue::kSwigluGrad:
      return LaunchSwigluGradGemm(stream, limits, key, operands);
    case Epilogue::kGeluGradBias:
      break;
    default:
      return LaunchBiasGeluGemm(stream, limits, key, operands);
  }
  CHECK_GE(workspace.bytes, CustomGemmScratchBytes(key));
  auto* const partials = static_cast<float*>(workspace.data);
  LaunchGeluGradGemm(stream, limits, key, operands, partials);
  CombineColumns(stream, {.data = partials, .blocks = TokenTilesOf(key), .stride = key.m}, key.m,
                 bias_mode, {Tensor{operands.bias, DType::kF32, {key.m}}});
}

}  // namespace mt::kernels::cuda
