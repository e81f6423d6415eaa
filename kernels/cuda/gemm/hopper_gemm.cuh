// The main loop of the custom GEMM kernels for 16-bit matrices on Hopper, for any epilogue. It is a
// persistent, warp-specialised "pingpong" kernel as CUTLASS has it: a thread block has two consumer
// warpgroups, which multiply, and one producer warpgroup, which copies. The consumers take turns:
// while one accumulates a tile of 128 features x 192 tokens, the other applies the epilogue to its
// own, so the tensor cores never wait for it. TMA brings tiles of operands through a ring of
// stages; the two blocks of a cluster, neighbours in features, share the token half of each stage
// by multicast. What an epilogue reads and writes goes through quarters of a tile (64 features x 96
// tokens) in shared memory.
//
// Barriers (mbarrier): `full` (the bytes of a stage have arrived) and `empty` (both blocks have
// multiplied it), one each per stage; `turn` passes the ring from one consumer warpgroup to the
// other, and `finish` passes the quarters, because parity alone does not distinguish tiles; and
// those of the epilogue.
#pragma once

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/gemm/hopper.cuh"
#include "kernels/cuda/gemm/hopper_gemm.h"

namespace mt::kernels::cuda {

inline constexpr int kGemmThreads = 3 * kWarpgroup, kWarpgroupWarps = kWarpgroup / 32;
// Accumulators of a thread per half of the features.
inline constexpr int kGemmSums = kTileTokens / 2;
// Registers per thread after setmaxnreg. An SM has 65,536: 128 x 24 + 256 x 240 are 64,512.
inline constexpr int kCopyRegisters = 24, kMultiplyRegisters = 240;

// Position of a tile: its first feature and its index along the tokens.
struct TilePlace {
  int feature, token_tile;
};

__device__ __forceinline__ TilePlace TileAt(const TileCut& cut, int tile, int rank) {
  const int per_band = cut.band * cut.token_tiles, first = tile / per_band * cut.band;
  const int wide = min(cut.band, cut.pairs - first), within = tile % per_band;
  return {((first + within % wide) * kClusterBlocks + rank) * kTileFeatures, within / wide};
}

// Global feature and token at which a quarter begins. Quarters 0 and 1 cover the first 64 features.
__device__ __forceinline__ int FeatureOf(const TilePlace& at, int quarter) {
  return at.feature + quarter / 2 * kBoxFeatures;
}
__device__ __forceinline__ int TokenOf(const TilePlace& at, int quarter) {
  return at.token_tile * kTileTokens + quarter % 2 * kHalfTileTokens;
}

// State of a thread block: shared-memory addresses, rank in its cluster, and its tiles.
struct GemmBlock {
  uint32_t stages, quarters;  // shared memory
  // Addresses of barriers of 8 bytes each.
  uint32_t full, empty, turn, finish, epilogue;
  // Rank in the cluster; the block computes tiles first, first + stride, ... below `tiles`.
  int rank, first, stride, tiles;
};

__device__ __forceinline__ int LaneOfWarp() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int WarpOfGroup() {
  return static_cast<int>(threadIdx.x) / 32 % kWarpgroupWarps;
}

// Address offset within a quarter of this thread's part of the first 16 tokens, for LoadTransposed
// and StoreTransposed: lane l addresses row l % 8 + 8 (l / 16) and a 16-byte chunk of features,
// swizzled. Each further 16 tokens are 16 kBoxRowBytes on.
__device__ __forceinline__ uint32_t PlaceInQuarter() {
  const int lane = LaneOfWarp(), row = lane / 16 * 8 + lane % 8,
            chunk = (2 * WarpOfGroup() + lane / 8 % 2) ^ (lane % 8);
  return row * kBoxRowBytes + chunk * 16;
}

// Feature, within a half's 64, of the thread's accumulators 4 j and 4 j + 1; accumulators 4 j + 2
// and 4 j + 3 belong to the feature 8 higher.
__device__ __forceinline__ int FeatureInHalf() { return WarpOfGroup() * 16 + LaneOfWarp() / 4; }

// The producer thread: fills the ring with the operands of all tiles of the block.
template <class Epilogue>
__device__ __forceinline__ void CopyOperands(const GemmBlock& block, const OperandMaps& maps,
                                             const TileCut& cut) {
  int stage = 0, parity = 1;
  for (int tile = block.first; tile < block.tiles; tile += block.stride) {
    const TilePlace at = TileAt(cut, tile, block.rank);
    const int token = at.token_tile * kTileTokens + block.rank * kHalfTileTokens;
    for (int step = 0; step < cut.steps; ++step) {
      WaitPhase(block.empty + 8 * stage, parity);
      const uint32_t full = block.full + 8 * stage, a = block.stages + stage * kStageBytes;
      ArriveAndExpect(full, kStageBytes);
      if constexpr (Epilogue::kTransposedA) {
        CopyTile(a, &maps.a, at.feature, step * kStageInner, full);
        CopyTile(a + kStageBytesOfA / 2, &maps.a, at.feature + kBoxFeatures, step * kStageInner,
                 full);
      } else if constexpr (Epilogue::kGated) {
        CopyTile(a, &maps.a, step * kStageInner, at.feature / 2, full);
        CopyTile(a + kStageBytesOfA / 2, &maps.up, step * kStageInner, at.feature / 2, full);
      } else {
        CopyTile(a, &maps.a, step * kStageInner, at.feature, full);
      }
      CopyTileToBoth(a + kStageBytesOfA + block.rank * kHalfTileTokens * kBoxRowBytes, &maps.b,
                     step * kStageInner, token, full);
      if (++stage < kRingStages) continue;
      stage = 0;
      parity ^= 1;
    }
  }
}

// A consumer warpgroup: accumulates every other tile of the block and applies the epilogue.
template <class Epilogue>
__device__ __forceinline__ void MultiplyTiles(const GemmBlock& block, const TileCut& cut, int group,
                                              const typename Epilogue::Args& args) {
  using S = typename Epilogue::Element;
  constexpr bool kTransposedA = Epilogue::kTransposedA;
  // Steps from one slice of 16 inputs to the next, in units of 16 bytes.
  constexpr int kNextA = kTransposedA ? 16 * kBoxRowBytes / 16 : 16 * kElementBytes / 16;
  constexpr int kNextB = 16 * kElementBytes / 16;
  const int lane = LaneOfWarp();
  float sums[2][kGemmSums];  // indexed by half of the features
  // Number of stages consumed before this tile by either warpgroup: each has every other tile of
  // the block.
  int steps = group * cut.steps, my_turn = group == 0 ? 1 : 0;
  const uint32_t stages = __shfl_sync(~0U, block.stages, 0) / 16;
  for (int tile = block.first + group * block.stride; tile < block.tiles;
       tile += 2 * block.stride, steps += 2 * cut.steps, my_turn ^= 1) {
    const Epilogue epilogue(args, TileAt(cut, tile, block.rank), cut.features);
    WaitPhase(block.turn + 8 * group, my_turn);
    int stage = steps % kRingStages, parity = steps / kRingStages & 1, last = -1;
    for (int step = 0; step < cut.steps; ++step) {
      WaitPhase(block.full + 8 * stage, parity);
      const uint32_t a = stages + stage * (kStageBytes / 16), b = a + kStageBytesOfA / 16;
      FenceWgmma();
#pragma unroll
      for (int k = 0; k < kStageInner / 16; ++k) {
        const uint32_t low = a + k * kNextA, high = low + kStageBytesOfA / 2 / 16;
        const bool add = step != 0 || k != 0;
        Multiply64x192x16<S, kTransposedA>(sums[0], low, b + k * kNextB, add);
        Multiply64x192x16<S, kTransposedA>(sums[1], high, b + k * kNextB, add);
      }
      if (step + 1 == cut.steps && lane == 0) Arrive(block.turn + 8 * (1 - group));
      CommitAndWaitWgmma<1>();
      if (last >= 0 && lane < kClusterBlocks) ArriveAt(block.empty + 8 * last, lane);
      last = stage;
      if (++stage < kRingStages) continue;
      stage = 0;
      parity ^= 1;
    }
    CommitAndWaitWgmma<0>();
    TouchAccumulators(sums[0]);
    TouchAccumulators(sums[1]);
    if (lane < kClusterBlocks) ArriveAt(block.empty + 8 * last, lane);
    WaitPhase(block.finish + 8 * group, my_turn);
    epilogue.Finish(block, group, sums);
  }
}

// An Epilogue has
//   Element, kTransposedA    dtype of the operands; whether A's features are contiguous in memory
//   kGated                   whether the second 64 features of a tile are partners of the first, in
//                            the other half of A's features
//   Args                     its arguments from the host, including tensor maps
//   Pipe                     how what it reads and writes goes through the quarters
//                            (quarter_pipe.cuh); its barriers are at block.epilogue
//   Copy                     run by one thread of the producer warpgroup, for all tiles of the
//                            block: Pipe::Copy
//   its constructor, Finish  run by each consumer thread before and after it accumulates a tile;
//                            Finish works on all parts of Pipe
template <class Epilogue>
__global__ void __cluster_dims__(kClusterBlocks) __launch_bounds__(kGemmThreads, 1)
    GemmKernel(const __grid_constant__ OperandMaps maps,
               const __grid_constant__ typename Epilogue::Args args, TileCut cut) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ alignas(8) uint64_t barriers[2 * kRingStages + 2 * 2 + Epilogue::Pipe::kBarriers];
  // Uniform in a warp, which __shfl_sync tells the compiler: otherwise the addresses of all
  // operands would be in vector registers.
  const int group = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  uint32_t window = SharedAddress(shared);
  window = (window + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment;
  uint32_t first_barrier = SharedAddress(barriers);
  asm volatile(""
               : "+r"(window),
                 "+r"(first_barrier));  // keeps the compiler from recomputing them in every loop
  GemmBlock block{.stages = window, .quarters = window + kRingStages * kStageBytes};
  block.full = first_barrier;
  block.empty = block.full + 8 * kRingStages;
  block.turn = block.empty + 8 * kRingStages;
  block.finish = block.turn + 8 * 2;
  block.epilogue = block.finish + 8 * 2;
  block.rank = RankInCluster();
  block.first = static_cast<int>(blockIdx.x) / kClusterBlocks;
  block.stride = static_cast<int>(gridDim.x) / kClusterBlocks;
  block.tiles = cut.pairs * cut.token_tiles;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRingStages; ++i) {
      InitBarrier(block.full + 8 * i, 1);
      InitBarrier(block.empty + 8 * i, kWarpgroupWarps * kClusterBlocks);
    }
    for (int i = 0; i < 2; ++i) {
      InitBarrier(block.turn + 8 * i, kWarpgroupWarps);
      InitBarrier(block.finish + 8 * i, kWarpgroupWarps);
    }
    Epilogue::Pipe::Init(block.epilogue);
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
  __syncwarp();   // the copying threads' warps reconverge before the cluster barrier
  MeetCluster();  // a block must not exit while the other may still write to its shared memory
#endif
}

// Enqueues the kernel as a programmatic dependent launch (dependent_launch.cuh).
template <class Epilogue>
void LaunchGemm(const Stream& stream, const HopperGemm& call, const typename Epilogue::Args& args,
                const char* op) {
  const auto kernel = GemmKernel<Epilogue>;
  CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kGemmSharedBytes));
  LaunchDependent(
      stream, kernel,
      {static_cast<unsigned>(call.clusters * kClusterBlocks), kGemmThreads, kGemmSharedBytes},
      call.operands, args, call.cut);
  CheckLaunch(op);
}

}  // namespace mt::kernels::cuda
