// The loop of a product of 16-bit matrices on Hopper, for any epilogue. A block has two warpgroups
// that multiply and one that copies. The two take turns: while one adds up a tile of 128 features x
// 192 tokens, the other applies the epilogue to its own, so the tensor cores never wait for it.
// Tiles of operands come through a ring of stages by TMA; two blocks of a cluster, neighbours in
// features, share the tokens' half of each stage. What an epilogue reads and writes goes through
// quarters of a tile (64 features x 96 tokens) in shared memory. Blocks stay, and take every so
// manieth tile.
//
// Who waits for whom: `full` (a stage's bytes are there) and `empty` (both blocks have multiplied
// it) per stage; `turn` hands the ring from one warpgroup to the other, and `finish` the quarters,
// since parity alone does not tell tiles apart; and the epilogue's own.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/hopper_product.h"
#include "kernels/cuda/numeric.cuh"

namespace mt::kernels::cuda::hopper {

inline constexpr int kThreads = 3 * kWarpgroup, kWarps = kWarpgroup / 32;
inline constexpr int kSums = kTokens / 2;  // of a thread, in each half of the features
// All 65,536 of an SM: 128 x 24 + 256 x 240 are 64,512.
inline constexpr int kCopyRegisters = 24, kMultiplyRegisters = 240;

struct Place {
  int feature, token_tile;
};

__device__ __forceinline__ Place PlaceOf(const Cut& cut, int tile, int rank) {
  const int per_band = cut.band * cut.token_tiles, first = tile / per_band * cut.band;
  const int wide = min(cut.band, cut.pairs - first), within = tile % per_band;
  return {((first + within % wide) * kCluster + rank) * kFeatures, within / wide};
}

// Quarters 0 and 1 are of the first 64 features.
__device__ __forceinline__ int FeatureOf(const Place& at, int quarter) {
  return at.feature + quarter / 2 * kBoxFeatures;
}
__device__ __forceinline__ int TokenOf(const Place& at, int quarter) {
  return at.token_tile * kTokens + quarter % 2 * kHalfTokens;
}

struct Block {
  uint32_t stages, quarters;                     // shared memory
  uint32_t full, empty, turn, finish, epilogue;  // barriers, of 8 bytes each
  int rank, first, stride, tiles;                // in the cluster; tiles [first, tiles) by stride
};

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x) / 32 % kWarps; }

// Where in a quarter this thread's part of the first 16 tokens is for LoadTransposed and
// StoreTransposed: lane l names row l % 8 + 8 (l / 16), and the feature chunk of 16 bytes,
// swizzled. Each 16 tokens more are 16 kRow bytes on.
__device__ __forceinline__ uint32_t PlaceInQuarter() {
  const int lane = Lane(), row = lane / 16 * 8 + lane % 8,
            chunk = (2 * Warp() + lane / 8 % 2) ^ (lane % 8);
  return row * kRow + chunk * 16;
}

// Feature, within a half's 64, of the thread's sums 4 j and 4 j + 1; that of the other two is 8 on.
__device__ __forceinline__ int FeatureInHalf() { return Warp() * 16 + Lane() / 4; }

// Around a multiplying warpgroup's work on a part of its tile, the last one being where the other
// warpgroup may go on to the quarters: `ready` says that it may begin, `written` that it is done.
__device__ __forceinline__ void BeginPart(const Block& block, int group, bool last, uint32_t ready,
                                          int parity) {
  WaitPhase(ready, parity);
  if (last && Lane() == 0) Arrive(block.finish + 8 * (1 - group));
}
__device__ __forceinline__ void EndPart(uint32_t written) {
  ShowToTiles();
  __syncwarp();
  if (Lane() == 0) Arrive(written);
}

template <class Epilogue>
__device__ __forceinline__ void CopyOperands(const Block& block, const OperandMaps& maps,
                                             const Cut& cut) {
  int stage = 0, parity = 1;
  for (int tile = block.first; tile < block.tiles; tile += block.stride) {
    const Place at = PlaceOf(cut, tile, block.rank);
    const int token = at.token_tile * kTokens + block.rank * kHalfTokens;
    for (int step = 0; step < cut.steps; ++step) {
      WaitPhase(block.empty + 8 * stage, parity);
      const uint32_t full = block.full + 8 * stage, a = block.stages + stage * kStageBytes;
      ArriveAndExpect(full, kStageBytes);
      if constexpr (Epilogue::kTransposedA) {
        CopyTile(a, &maps.a, at.feature, step * kInner, full);
        CopyTile(a + kBytesOfA / 2, &maps.a, at.feature + kBoxFeatures, step * kInner, full);
      } else if constexpr (Epilogue::kGated) {
        CopyTile(a, &maps.a, step * kInner, at.feature / 2, full);
        CopyTile(a + kBytesOfA / 2, &maps.up, step * kInner, at.feature / 2, full);
      } else {
        CopyTile(a, &maps.a, step * kInner, at.feature, full);
      }
      CopyTileToBoth(a + kBytesOfA + block.rank * kHalfTokens * kRow, &maps.b, step * kInner, token,
                     full);
      if (++stage < kStages) continue;
      stage = 0;
      parity ^= 1;
    }
  }
}

template <class Epilogue>
__device__ __forceinline__ void MultiplyTiles(const Block& block, const Cut& cut, int group,
                                              const typename Epilogue::Args& args) {
  using S = typename Epilogue::Element;
  constexpr bool kTransposedA = Epilogue::kTransposedA;
  // From one 16 inputs to the next, in units of 16 bytes.
  constexpr int kNextA = kTransposedA ? 16 * kRow / 16 : 16 * kElement / 16;
  constexpr int kNextB = 16 * kElement / 16;
  const int lane = Lane();
  float sums[2][kSums];  // by half of the features
  // Steps so far, of this block's tiles: this warpgroup has every other tile.
  int steps = group * cut.steps, my_turn = group == 0 ? 1 : 0;
  const uint32_t stages = __shfl_sync(~0U, block.stages, 0) / 16;
  for (int tile = block.first + group * block.stride; tile < block.tiles;
       tile += 2 * block.stride, steps += 2 * cut.steps, my_turn ^= 1) {
    const Epilogue epilogue(args, PlaceOf(cut, tile, block.rank), cut.features);
    WaitPhase(block.turn + 8 * group, my_turn);
    int stage = steps % kStages, parity = steps / kStages & 1, last = -1;
    for (int step = 0; step < cut.steps; ++step) {
      WaitPhase(block.full + 8 * stage, parity);
      const uint32_t a = stages + stage * (kStageBytes / 16), b = a + kBytesOfA / 16;
      BeginProducts();
#pragma unroll
      for (int k = 0; k < kInner / 16; ++k) {
        const uint32_t low = a + k * kNextA, high = low + kBytesOfA / 2 / 16;
        const bool add = step != 0 || k != 0;
        Multiply64x192x16<S, kTransposedA>(sums[0], low, b + k * kNextB, add);
        Multiply64x192x16<S, kTransposedA>(sums[1], high, b + k * kNextB, add);
      }
      if (step + 1 == cut.steps && lane == 0) Arrive(block.turn + 8 * (1 - group));
      EndProducts<1>();
      if (last >= 0 && lane < kCluster) ArriveAt(block.empty + 8 * last, lane);
      last = stage;
      if (++stage < kStages) continue;
      stage = 0;
      parity ^= 1;
    }
    EndProducts<0>();
    TouchAccumulators(sums[0]);
    TouchAccumulators(sums[1]);
    if (lane < kCluster) ArriveAt(block.empty + 8 * last, lane);
    WaitPhase(block.finish + 8 * group, my_turn);
    epilogue.Finish(block, group, sums);
  }
}

// An Epilogue has
//   Element, kTransposedA    type of the operands; whether A's features are contiguous in memory
//   kGated                   whether the second 64 features of a tile are partners of the first, in
//                            the other half of A's features
//   Args                     what it gets from the host, tensor maps among it
//   kBarriers, Init          its barriers at block.epilogue; one thread initialises them
//   Copy                     one thread of the copying warpgroup, through all of the block's tiles
//   Epilogue(args, place, features) and Finish: a multiplying thread, before it adds up a tile and
//                            behind that, with BeginPart and EndPart, one part or more
template <class Epilogue>
__global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 1)
    ProductKernel(const __grid_constant__ OperandMaps maps,
                  const __grid_constant__ typename Epilogue::Args args, Cut cut) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ alignas(8) uint64_t barriers[2 * kStages + 2 * 2 + Epilogue::kBarriers];
  // Uniform in a warp, and said so: else addresses of every product pass through vector registers.
  const int group = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  uint32_t window = SharedAddress(shared);
  window = (window + kAlignment - 1) / kAlignment * kAlignment;
  uint32_t first_barrier = SharedAddress(barriers);
  asm volatile("" : "+r"(window), "+r"(first_barrier));  // computed once, not in every loop
  Block block{.stages = window, .quarters = window + kStages * kStageBytes};
  block.full = first_barrier;
  block.empty = block.full + 8 * kStages;
  block.turn = block.empty + 8 * kStages;
  block.finish = block.turn + 8 * 2;
  block.epilogue = block.finish + 8 * 2;
  block.rank = RankInCluster();
  block.first = static_cast<int>(blockIdx.x) / kCluster;
  block.stride = static_cast<int>(gridDim.x) / kCluster;
  block.tiles = cut.pairs * cut.token_tiles;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(block.full + 8 * i, 1);
      InitBarrier(block.empty + 8 * i, kWarps * kCluster);
    }
    for (int i = 0; i < 2; ++i) {
      InitBarrier(block.turn + 8 * i, kWarps);
      InitBarrier(block.finish + 8 * i, kWarps);
    }
    Epilogue::Init(block.epilogue);
    PublishBarriers();
  }
  WaitForKernelBefore();
  MeetCluster();
  if (group == 0) {
    GiveRegisters<kCopyRegisters>();
    if (threadIdx.x == 0) CopyOperands<Epilogue>(block, maps, cut);
    if (threadIdx.x == 32) Epilogue::Copy(block, args, cut);
  } else {
    TakeRegisters<kMultiplyRegisters>();
    MultiplyTiles<Epilogue>(block, cut, group - 1, args);
  }
  __syncwarp();   // the copying threads' warps meet before they meet the others
  MeetCluster();  // neither block's memory goes while the other one may write to it
#endif
}

template <class Epilogue>
void Launch(const Stream& stream, const Call& call, const typename Epilogue::Args& args,
            const char* op) {
  const auto kernel = ProductKernel<Epilogue>;
  CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  LaunchDependent(stream, kernel,
                  {static_cast<unsigned>(call.clusters * kCluster), kThreads, kSharedBytes},
                  call.operands, args, call.cut);
  CheckLaunch(op);
}

}  // namespace mt::kernels::cuda::hopper
