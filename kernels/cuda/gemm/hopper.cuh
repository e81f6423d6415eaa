// Instructions of compute capability 9.0a as functions (PTX ISA): mbarriers in shared memory, which
// count arrivals and bytes ("mbarrier"), tiles copied by the Tensor Memory Accelerator, also to
// both blocks of a cluster ("cp.async.bulk.tensor"), and matrix products of a warpgroup of 128
// threads ("wgmma.mma_async"). Addresses are those of the shared window. Only for code under
// __CUDA_ARCH_FEAT_SM90_ALL.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/core/dtype.h"

namespace mt::kernels::cuda {

inline constexpr int kWarpgroup = 128;

// --- Barriers. A phase ends when all arrivals and all expected bytes are in; phases alternate in
// parity, starting with 0. A wait for the parity that is not that of the current phase returns at
// once.

__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes InitBarrier visible to the other block of the cluster and to TMA, once the cluster has
// synchronised.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the barrier with this address in block `rank` of the cluster.
__device__ __forceinline__ void ArriveAt(uint32_t barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}"
      :
      : "r"(barrier), "r"(rank)
      : "memory");
}
// Arrives, and adds `bytes` to what the phase expects from TMA.
__device__ __forceinline__ void ArriveAndExpect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Blocks the thread until the phase of this parity has ended.
__device__ __forceinline__ void WaitPhase(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "TRY:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@done bra DONE;\nbra TRY;\nDONE:\n}"
      :
      : "r"(barrier), "r"(parity)
      : "memory");
}

// --- Clusters.

__device__ __forceinline__ int RankInCluster() {
  int rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Synchronises all threads of all blocks of the cluster; what they wrote before is visible after
// it.
__device__ __forceinline__ void MeetCluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// --- Tiles: boxes of a tensor map at (x, y), x being the contiguous dimension. Elements outside
// the tensor read as zero (their bytes are counted) and are not written. Called by one thread.

__device__ __forceinline__ void CopyTile(uint32_t to, const CUtensorMap* map, int x, int y,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];"
      :
      : "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// Copies to the same address in both blocks of a cluster of two (multicast); the barrier of each
// counts its bytes.
__device__ __forceinline__ void CopyTileToBoth(uint32_t to, const CUtensorMap* map, int x, int y,
                                               uint32_t barrier) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
      :
      : "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(kBoth)
      : "memory");
}
__device__ __forceinline__ void StoreTile(const CUtensorMap* map, int x, int y, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
               :
               : "l"(map), "r"(x), "r"(y), "r"(from)
               : "memory");
}
// Waits until this thread's stores have read shared memory, so that it may be overwritten.
__device__ __forceinline__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until the stores of this thread's committed groups are complete.
__device__ __forceinline__ void WaitStores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// Makes this thread's writes to shared memory visible to tile stores issued after it (proxy fence).
__device__ __forceinline__ void ShowToTiles() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- Matrices of 8 x 8 elements of 16 bits, transposed on the way (ldmatrix, stmatrix). Lane l
// gives the address of row l % 8 of matrix l / 8; word i of a lane then holds rows 2 (lane % 4) and
// 2 (lane % 4) + 1 of matrix i, column lane / 4.

__device__ __forceinline__ void LoadTransposed(uint32_t row, uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void StoreTransposed(uint32_t row, const uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(row), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// --- Registers per thread of a warpgroup from here on (setmaxnreg).

template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- Matrix multiply-accumulate of a warpgroup (wgmma).

// Needed between other uses of the accumulators and the first wgmma that adds to them.
__device__ __forceinline__ void FenceWgmma() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Commits a group of wgmmas, and waits until all but the latest kPending groups are complete.
template <int kPending>
__device__ __forceinline__ void CommitAndWaitWgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned %0;" ::"n"(kPending)
               : "memory");
}

// High word of the matrix descriptor (PTX ISA, "Matrix Descriptor Format"): operands in shared
// memory in rows of 128 bytes that TMA swizzled, groups of eight rows 1,024 bytes apart. The low
// word is address / 16.
inline constexpr int kDescriptorHigh = (1 << 30) | (1024 >> 4);

#define MT_WORDS_4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define MT_WORDS_16(d, i) \
  MT_WORDS_4(d, i), MT_WORDS_4(d, (i) + 4), MT_WORDS_4(d, (i) + 8), MT_WORDS_4(d, (i) + 12)
#define MT_WORDS_96(d)                                                           \
  MT_WORDS_16(d, 0), MT_WORDS_16(d, 16), MT_WORDS_16(d, 32), MT_WORDS_16(d, 48), \
      MT_WORDS_16(d, 64), MT_WORDS_16(d, 80)
#define MT_WGMMA_64x192x16(type, transpose_a)                                             \
  "{\n.reg .pred add;\n.reg .b64 da, db;\n"                                               \
  "mov.b64 da, {%96, %99};\nmov.b64 db, {%97, %99};\nsetp.ne.b32 add, %98, 0;\n"          \
  "wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type                            \
  " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "    \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, " \
  "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, " \
  "%69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
  "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, da, db, add, 1, 1, " transpose_a ", 0;\n}"

#define MT_MULTIPLY(type, transpose_a)               \
  asm volatile(MT_WGMMA_64x192x16(type, transpose_a) \
               : MT_WORDS_96(d)                      \
               : "r"(a), "r"(b), "r"(adds), "n"(kDescriptorHigh))

// d [64, 192] = a b + (add ? d : 0). a [64, 16] has k contiguous in memory (64 rows of 16) or, with
// kTransposedA, its rows (16 rows of 64); b [16, 192] has k contiguous (192 rows of 16). a, b:
// addresses / 16, the same in all threads. Word 4 j + 2 i + c of a thread is row 16 (warp % 4) +
// lane / 4 + 8 i, column 8 j + 2 (lane % 4) + c.
template <class S, bool kTransposedA>
__device__ __forceinline__ void Multiply64x192x16(float (&d)[96], uint32_t a, uint32_t b,
                                                  bool add) {
  const int adds = add ? 1 : 0;
  constexpr bool kIsBf16 = DTypeOf<S>() == DType::kBf16;
  if constexpr (kIsBf16 && kTransposedA) {
    MT_MULTIPLY("bf16", "1");
  } else if constexpr (kIsBf16) {
    MT_MULTIPLY("bf16", "0");
  } else if constexpr (kTransposedA) {
    MT_MULTIPLY("f16", "1");
  } else {
    MT_MULTIPLY("f16", "0");
  }
}

#undef MT_MULTIPLY
#undef MT_WGMMA_64x192x16
#undef MT_WORDS_96
#undef MT_WORDS_16
#undef MT_WORDS_4

// Tells the compiler that the accumulators may be read from here on, once CommitAndWaitWgmma has
// waited for them.
template <int kCount>
__device__ __forceinline__ void TouchAccumulators(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace mt::kernels::cuda
