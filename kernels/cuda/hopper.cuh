// Instructions of compute capability 9.0a (PTX ISA): barriers in shared memory that count arrivals
// and bytes, tiles copied by the tensor memory accelerator (TMA), also to both blocks of a cluster,
// and products of a warpgroup of 128 threads (wgmma). Addresses are of the shared window. Only for
// code under __CUDA_ARCH_FEAT_SM90_ALL.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/core/dtype.h"

namespace mt::kernels::cuda {

inline constexpr int kWarpgroup = 128;

// --- Barriers. A phase ends when all arrivals are there and all expected bytes; phases alternate
// in parity, from 0 on, and a wait for the other parity than that of the phase in progress ends at
// once.

__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes InitBarrier seen by the cluster's other block and by TMA, once they meet.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the barrier with this address in the cluster's block `rank`.
__device__ __forceinline__ void ArriveAt(uint32_t barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}"
      :
      : "r"(barrier), "r"(rank)
      : "memory");
}
__device__ __forceinline__ void ArriveAndExpect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
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
// All threads of all blocks of the cluster; what they wrote before is seen after.
__device__ __forceinline__ void MeetCluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// --- Tiles: boxes of a tensor map at (x, y), x the contiguous dimension. What lies outside reads
// as zero, its bytes counted, and is not written. One thread.

__device__ __forceinline__ void CopyTile(uint32_t to, const CUtensorMap* map, int x, int y,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];"
      :
      : "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// To the same place in both blocks of a cluster of two; each one's barrier counts its bytes.
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
// Until this thread's stores have read shared memory, so that it may be written again.
__device__ __forceinline__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void WaitStores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// What this thread wrote to shared memory is seen by tiles stored after it.
__device__ __forceinline__ void ShowToTiles() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- Matrices of 8 x 8 elements of 16 bits, transposed on the way. Lane l names row l % 8 of
// matrix l / 8; word i of a lane then holds rows 2 (lane % 4) and + 1 of matrix i, column lane / 4.

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

// --- Registers, of a warpgroup from here on.

template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- Products.

// Between other uses of accumulators and the first product that adds to them.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Ends a group of products, and waits until all but the latest kPending groups are done.
template <int kPending>
__device__ __forceinline__ void EndProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned %0;" ::"n"(kPending)
               : "memory");
}

// Operands of a product in shared memory, both in rows of 128 bytes that TMA swizzled, groups of
// eight rows 1,024 bytes apart: address / 16 in the descriptor's low word, this in its high one.
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

// d [64, 192] = a b + (add ? d : 0), a [64, 16] with k in memory's contiguous dimension (64 rows of
// 16) or, kTransposedA, with its rows there (16 rows of 64), b [16, 192] with k there (192 rows of
// 16). a, b: addresses / 16, the same in all threads. Word 4 j + 2 i + c of a thread: row 16 (warp
// % 4) + lane / 4 + 8 i, column 8 j + 2 (lane % 4) + c.
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

// Accumulators may be read from here on, once EndProducts has waited for them.
template <int kCount>
__device__ __forceinline__ void TouchAccumulators(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace mt::kernels::cuda
