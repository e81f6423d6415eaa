// A block has two warpgroups that multiply and one that copies. The two take turns: while one adds
// up a tile of 128 features x 192 tokens, the other applies GELU's slope to its own, so the tensor
// cores never wait for an epilogue. Tiles of operands come through a ring of stages by TMA; two
// blocks of a cluster, neighbours in features, share the tokens' half of each stage. The slope's
// inputs and the results go through quarters of a tile (64 features x 96 tokens) in shared memory,
// each read, overwritten and stored in place. Blocks stay, and take every so manieth tile.
//
// Who waits for whom: `full` (a stage's bytes are there) and `empty` (both blocks have multiplied
// it) per stage; `loaded` (slope inputs are there) and `written` (results are) per quarter; `turn`
// hands the ring from one warpgroup to the other, and `finish` the quarters, since parity alone
// does not tell tiles apart.
#include <algorithm>

#include <cuda.h>

#include "common/base/math.h"
#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/gelu_grad_product.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/rows.h"

namespace mt::kernels::cuda {
namespace {

constexpr int kFeatures = 128, kTokens = 192, kInner = 64;   // of a block's tile, and of a stage
constexpr int kHalfTokens = kTokens / 2, kBoxFeatures = 64;  // 64 elements are a row of 128 bytes
constexpr int kStages = 4, kCluster = 2, kQuarters = 4;
constexpr int kElement = 2, kRow = kBoxFeatures * kElement;  // bytes
constexpr int kWeightBytes = kFeatures * kInner * kElement;
constexpr int kStageBytes = kWeightBytes + kTokens * kInner * kElement;
constexpr int kQuarterBytes = kBoxFeatures * kHalfTokens * kElement;
constexpr int kAlignment = 1024;  // of swizzled tiles
constexpr int kSharedBytes = kStages * kStageBytes + kQuarters * kQuarterBytes + kAlignment;
constexpr int kThreads = 3 * kWarpgroup, kWarps = kWarpgroup / 32;
// All 65,536 of an SM: 128 x 24 + 256 x 240 are 64,512.
constexpr int kCopyRegisters = 24, kMultiplyRegisters = 240;
// Weights that stay in the L2 cache while all tokens pass by.
constexpr int64_t kBandBytes = int64_t{8} << 20;

// How a call is cut: pairs of tiles, numbered in bands of `band` in features, in a band features
// first.
struct Cut {
  int pairs = 0, token_tiles = 0, band = 0;
  int steps = 0;  // stages a tile
  int features = 0;
};

struct Maps {
  CUtensorMap weight, dy, pre, dpre;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct Place {
  int feature, token_tile;
};

__device__ __forceinline__ Place PlaceOf(const Cut& cut, int tile, int rank) {
  const int per_band = cut.band * cut.token_tiles, first = tile / per_band * cut.band;
  const int wide = min(cut.band, cut.pairs - first), within = tile % per_band;
  return {((first + within % wide) * kCluster + rank) * kFeatures, within / wide};
}

struct Barriers {
  uint32_t full, empty, loaded, written, turn, finish;  // arrays of 8 bytes each
};

struct Block {
  uint32_t stages, quarters;  // shared memory
  Barriers barriers;
  int rank, first, stride, tiles;  // in the cluster; tiles [first, tiles) by stride
};

__device__ __forceinline__ void CopyOperands(const Block& block, const Maps& maps, const Cut& cut) {
  int stage = 0, parity = 1;
  for (int tile = block.first; tile < block.tiles; tile += block.stride) {
    const Place at = PlaceOf(cut, tile, block.rank);
    const int token = at.token_tile * kTokens + block.rank * kHalfTokens;
    for (int step = 0; step < cut.steps; ++step) {
      WaitPhase(block.barriers.empty + 8 * stage, parity);
      const uint32_t full = block.barriers.full + 8 * stage;
      const uint32_t weight = block.stages + stage * kStageBytes;
      ArriveAndExpect(full, kStageBytes);
      CopyTile(weight, &maps.weight, at.feature, step * kInner, full);
      CopyTile(weight + kWeightBytes / 2, &maps.weight, at.feature + kBoxFeatures, step * kInner,
               full);
      CopyTileToBoth(weight + kWeightBytes + block.rank * kHalfTokens * kRow, &maps.dy,
                     step * kInner, token, full);
      if (++stage < kStages) continue;
      stage = 0;
      parity ^= 1;
    }
  }
}

__device__ __forceinline__ void CopyQuarters(const Block& block, const Maps& maps, const Cut& cut) {
  const auto feature = [](const Place& at, int quarter) {
    return at.feature + quarter / 2 * kBoxFeatures;
  };
  const auto token = [](const Place& at, int quarter) {
    return at.token_tile * kTokens + quarter % 2 * kHalfTokens;
  };
  const auto load = [&](int tile, int quarter) {
    if (tile >= block.tiles) return;
    const Place at = PlaceOf(cut, tile, block.rank);
    const uint32_t loaded = block.barriers.loaded + 8 * quarter;
    ArriveAndExpect(loaded, kQuarterBytes);
    CopyTile(block.quarters + quarter * kQuarterBytes, &maps.pre, feature(at, quarter),
             token(at, quarter), loaded);
  };
  for (int quarter = 0; quarter < kQuarters; ++quarter) load(block.first, quarter);
  int parity = 0;
  for (int tile = block.first; tile < block.tiles; tile += block.stride, parity ^= 1) {
    const Place at = PlaceOf(cut, tile, block.rank);
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      WaitPhase(block.barriers.written + 8 * quarter, parity);
      StoreTile(&maps.dpre, feature(at, quarter), token(at, quarter),
                block.quarters + quarter * kQuarterBytes);
      WaitStoresRead();
      load(tile + block.stride, quarter);
    }
  }
  WaitStores();
}

// Both values of a word cut to [-8, 8], where GELU's slope is 0 and 1 to the last bit; NaN stays.
template <class S>
__device__ __forceinline__ uint32_t CutTo8(uint32_t pair) {
  if constexpr (DTypeOf<S>() == DType::kBf16) {
    asm("min.NaN.bf16x2 %0, %0, %1;\nmax.NaN.bf16x2 %0, %0, %2;"
        : "+r"(pair)
        : "r"(0x41004100U), "r"(0xC100C100U));
  } else {
    asm("min.NaN.f16x2 %0, %0, %1;\nmax.NaN.f16x2 %0, %0, %2;"
        : "+r"(pair)
        : "r"(0x48004800U), "r"(0xC800C800U));
  }
  return pair;
}

// v[i] *= gelu'(x[i]): with s = (1 + tanh u) / 2, gelu(x) = x s and gelu'(x) = s + x u' 2 s (1 -
// s). In stages over all eight, or the compiler makes one chain after the other.
template <class S>
__device__ __forceinline__ void TimesGeluSlope(const uint32_t (&words)[4], Float8* v) {
  constexpr float kRootTwoOverPi = 0.7978845608028654F, kCubic = kRootTwoOverPi * 0.044715F;
  Stored8<S> cut;
#pragma unroll
  for (int i = 0; i < 4; ++i) cut.word[i] = CutTo8<S>(words[i]);
  Float8 s = Widen(cut), w;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const float x = s.v[i], square = x * x;
    s.v[i] = x * fmaf(kCubic, square, kRootTwoOverPi);
    w.v[i] = x * fmaf(6 * kCubic, square, 2 * kRootTwoOverPi);
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) asm volatile("tanh.approx.f32 %0, %0;" : "+f"(s.v[i]));
#pragma unroll
  for (int i = 0; i < kGroup; ++i) s.v[i] = fmaf(0.5F, s.v[i], 0.5F);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) w.v[i] = fmaf(w.v[i], fmaf(-s.v[i], s.v[i], s.v[i]), s.v[i]);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) v->v[i] *= w.v[i];
}

// One half (64 features) of a tile's accumulators: the slope, the sums, the results.
template <class S>
__device__ __forceinline__ void Finish(const Block& block, int half, int group,
                                       const float (&sum)[kTokens / 2], float* partials,
                                       int features_left) {
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
  // Lane l names token l % 8 + 8 (l / 16) of 16, and the feature chunk of 16 bytes, swizzled.
  const int row = lane / 16 * 8 + lane % 8, chunk = (2 * warp + lane / 8 % 2) ^ (lane % 8);
  float low = 0, high = 0;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int quarter = 2 * half + part;
    const uint32_t at = block.quarters + quarter * kQuarterBytes + row * kRow + chunk * 16;
    uint32_t words[2][4];
    WaitPhase(block.barriers.loaded + 8 * quarter, group);  // the other one has odd tiles
    if (quarter == kQuarters - 1 && lane == 0) Arrive(block.barriers.finish + 8 * (1 - group));
    LoadTransposed(at, words[0]);
#pragma unroll
    for (int j = 0; j < kHalfTokens / 16; ++j) {
      uint32_t(&now)[4] = words[j % 2];
      if (j + 1 < kHalfTokens / 16) LoadTransposed(at + (j + 1) * 16 * kRow, words[(j + 1) % 2]);
      Float8 v;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) v.v[i] = sum[part * kHalfTokens / 2 + j * kGroup + i];
      TimesGeluSlope<S>(now, &v);
      low += (v.v[0] + v.v[1]) + (v.v[4] + v.v[5]);
      high += (v.v[2] + v.v[3]) + (v.v[6] + v.v[7]);
#pragma unroll
      for (int i = 0; i < 4; ++i) now[i] = NarrowPair<S>(v.v[2 * i], v.v[2 * i + 1]);
      StoreTransposed(at + j * 16 * kRow, now);
    }
    ShowToTiles();
    __syncwarp();
    if (lane == 0) Arrive(block.barriers.written + 8 * quarter);
  }
#pragma unroll
  for (int i = 1; i < 4; i *= 2) {
    low += __shfl_xor_sync(~0U, low, i);
    high += __shfl_xor_sync(~0U, high, i);
  }
  const int feature = warp * 16 + lane / 4;
  if (lane % 4 != 0) return;
  if (feature < features_left) partials[feature] = low;
  if (feature + 8 < features_left) partials[feature + 8] = high;
}

template <class S>
__device__ __forceinline__ void MultiplyTiles(const Block& block, const Cut& cut, int group,
                                              float* partials) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sums[2][kTokens / 2];  // by half of the features
  // Steps so far, of this block's tiles: this warpgroup has every other tile.
  int steps = group * cut.steps, my_turn = group == 0 ? 1 : 0;
  const uint32_t stages = __shfl_sync(~0U, block.stages, 0) / 16;
  for (int tile = block.first + group * block.stride; tile < block.tiles;
       tile += 2 * block.stride, steps += 2 * cut.steps, my_turn ^= 1) {
    WaitPhase(block.barriers.turn + 8 * group, my_turn);
    int stage = steps % kStages, parity = steps / kStages & 1, last = -1;
    for (int step = 0; step < cut.steps; ++step) {
      WaitPhase(block.barriers.full + 8 * stage, parity);
      const uint32_t weight = stages + stage * (kStageBytes / 16), dy = weight + kWeightBytes / 16;
      BeginProducts();
#pragma unroll
      for (int k = 0; k < kInner / 16; ++k) {
        const uint32_t w = weight + k * (16 * kRow / 16), y = dy + k * (16 * kElement / 16);
        const bool add = step != 0 || k != 0;
        Multiply64x192x16<S>(sums[0], w, y, add);
        Multiply64x192x16<S>(sums[1], w + kWeightBytes / 2 / 16, y, add);
      }
      if (step + 1 == cut.steps && lane == 0) Arrive(block.barriers.turn + 8 * (1 - group));
      EndProducts<1>();
      if (last >= 0 && lane < kCluster) ArriveAt(block.barriers.empty + 8 * last, lane);
      last = stage;
      if (++stage < kStages) continue;
      stage = 0;
      parity ^= 1;
    }
    EndProducts<0>();
    TouchAccumulators(sums[0]);
    TouchAccumulators(sums[1]);
    if (lane < kCluster) ArriveAt(block.barriers.empty + 8 * last, lane);
    const Place at = PlaceOf(cut, tile, block.rank);
    float* const out = partials + static_cast<int64_t>(at.token_tile) * cut.features + at.feature;
    const int left = cut.features - at.feature;
    WaitPhase(block.barriers.finish + 8 * group, my_turn);
    Finish<S>(block, 0, group, sums[0], out, left);
    Finish<S>(block, 1, group, sums[1], out + kBoxFeatures, left - kBoxFeatures);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <class S>
__global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 1)
    GeluGradProductKernel(const __grid_constant__ Maps maps, float* partials, Cut cut) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ alignas(8) uint64_t barriers[2 * kStages + 2 * kQuarters + 2 * 2];
  // Uniform in a warp, and said so: else addresses of every product pass through vector registers.
  const int group = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  uint32_t window = SharedAddress(shared);
  window = (window + kAlignment - 1) / kAlignment * kAlignment;
  uint32_t first_barrier = SharedAddress(barriers);
  asm volatile("" : "+r"(window), "+r"(first_barrier));  // computed once, not in every loop
  Block block{.stages = window, .quarters = window + kStages * kStageBytes};
  Barriers& b = block.barriers;
  b.full = first_barrier;
  b.empty = b.full + 8 * kStages;
  b.loaded = b.empty + 8 * kStages;
  b.written = b.loaded + 8 * kQuarters;
  b.turn = b.written + 8 * kQuarters;
  b.finish = b.turn + 8 * 2;
  block.rank = RankInCluster();
  block.first = static_cast<int>(blockIdx.x) / kCluster;
  block.stride = static_cast<int>(gridDim.x) / kCluster;
  block.tiles = cut.pairs * cut.token_tiles;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(b.full + 8 * i, 1);
      InitBarrier(b.empty + 8 * i, kWarps * kCluster);
    }
    for (int i = 0; i < kQuarters; ++i) {
      InitBarrier(b.loaded + 8 * i, 1);
      InitBarrier(b.written + 8 * i, kWarps);
    }
    for (int i = 0; i < 2; ++i) {
      InitBarrier(b.turn + 8 * i, kWarps);
      InitBarrier(b.finish + 8 * i, kWarps);
    }
    PublishBarriers();
  }
  WaitForKernelBefore();
  MeetCluster();
  if (group == 0) {
    GiveRegisters<kCopyRegisters>();
    if (threadIdx.x == 0) CopyOperands(block, maps, cut);
    if (threadIdx.x == 32) CopyQuarters(block, maps, cut);
  } else {
    TakeRegisters<kMultiplyRegisters>();
    MultiplyTiles<S>(block, cut, group - 1, partials);
  }
  __syncwarp();   // the copying threads' warps meet before they meet the others
  MeetCluster();  // neither block's memory goes while the other one may write to it
#endif
}

// [rows, columns] of 16 bits, columns contiguous, in boxes of `box_rows` x 64.
CUtensorMap MapOf(const ProductKey& key, const void* data, int64_t rows, int64_t columns,
                  int box_rows) {
  static const auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                cudaEnableDefault, &found));
    CHECK(found == cudaDriverEntryPointSuccess) << "the driver has no cuTensorMapEncodeTiled";
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns * kElement)};
  const cuuint32_t box[] = {kBoxFeatures, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
  const CUresult status = encode(
      &map,
      key.in == DType::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      2, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(status == CUDA_SUCCESS) << "cuTensorMapEncodeTiled: " << static_cast<int>(status) << " for "
                                << ToText({.form = true, .product = key});
  return map;
}

int64_t TokenTiles(const ProductKey& key) { return base::CeilDiv(key.n, int64_t{kTokens}); }

}  // namespace

bool HasGeluGradProduct(const DeviceLimits& limits, const ProductKey& key) {
  constexpr int64_t kMost = int64_t{1} << 30;  // coordinates and tiles are counted in 32 bits
  return limits.major == 9 && limits.minor == 0 && key.epilogue == Epilogue::kGeluGradBias &&
         !key.transpose_a && !key.transpose_b && !key.add && key.in == key.out &&
         SizeOf(key.in) == kElement && key.alignment == 16 && key.m % 8 == 0 && key.k % 8 == 0 &&
         key.m < kMost && key.n < kMost && key.k < kMost &&
         (key.m / kFeatures + 2) * (key.n / kTokens + 1) < kMost && (key.sms == 0 || key.sms > 1);
}

int64_t GeluGradPartialBytes(const ProductKey& key) {
  return TokenTiles(key) * key.m * int64_t{sizeof(float)};
}

void RunGeluGradProduct(const Stream& stream, const DeviceLimits& limits, const ProductKey& key,
                        const ProductOperands& operands, GradMode mode,
                        const Workspace& workspace) {
  CHECK_GE(workspace.bytes, GeluGradPartialBytes(key));
  Cut cut;
  cut.pairs = static_cast<int>(base::CeilDiv(key.m, int64_t{kFeatures * kCluster}));
  cut.token_tiles = static_cast<int>(TokenTiles(key));
  cut.band = static_cast<int>(
      std::max<int64_t>(1, kBandBytes / (kFeatures * kCluster * key.k * kElement)));
  cut.steps = static_cast<int>(base::CeilDiv(key.k, int64_t{kInner}));
  cut.features = static_cast<int>(key.m);
  const Maps maps{.weight = MapOf(key, operands.a, key.k, key.m, kInner),
                  .dy = MapOf(key, operands.b, key.n, key.k, kHalfTokens),
                  .pre = MapOf(key, operands.aux, key.n, key.m, kHalfTokens),
                  .dpre = MapOf(key, operands.d, key.n, key.m, kHalfTokens)};
  const int64_t sms = key.sms == 0 ? limits.num_sms : std::min(key.sms, limits.num_sms);
  const int64_t clusters =
      std::min<int64_t>(sms / kCluster, int64_t{cut.pairs} * int64_t{cut.token_tiles});
  auto* const partials = static_cast<float*>(workspace.data);
  ForGpuType(key.in, "InputGradAct", [&](auto zero) {
    using S = decltype(zero);
    if constexpr (sizeof(S) == kElement) {
      const auto kernel = GeluGradProductKernel<S>;
      CUDA_CHECK(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
      LaunchDependent(stream, kernel,
                      {static_cast<unsigned>(clusters * kCluster), kThreads, kSharedBytes}, maps,
                      partials, cut);
      CheckLaunch("InputGradAct");
    }
  });
  CombineColumns(stream, {.data = partials, .blocks = cut.token_tiles, .stride = key.m}, key.m,
                 mode, {Tensor{operands.bias, DType::kF32, {key.m}}});
}

}  // namespace mt::kernels::cuda
