// E10: fc1 with bias and GELU as an own product in the manner of kernels/cuda/gelu_grad_product.cu,
// which says how it works, against cuBLASLt's GELU_AUX_BIAS, on a hot device. Two results per tile:
// what GELU is taken of, and GELU. Settles whether ForwardAct should have an own form. Column-major
// terms: m features, n tokens, k inputs.
#include <algorithm>
#include <cmath>

#include <cudaTypedefs.h>

#include "kernels/bench/experiments/measure.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/numeric.cuh"

namespace experiment {
namespace {

using namespace mt::kernels::cuda;  // NOLINT: one file of PTX wrappers
using mt::kernels::Bf16;

constexpr int kFeatures = 128, kTokens = 192, kInner = 64, kHalfTokens = kTokens / 2;
constexpr int kStages = 4, kCluster = 2, kRow = 128, kWarps = 4, kThreads = 384;
constexpr int kWeightBytes = kFeatures * kInner * 2;
constexpr int kStageBytes = kWeightBytes + kTokens * kInner * 2;
constexpr int kQuarterBytes = 64 * kHalfTokens * 2;
constexpr int kShared = kStages * kStageBytes + 4 * kQuarterBytes + 1024;

struct Maps {
  CUtensorMap weight, x, pre, y;
};
struct Cut {
  int pairs, token_tiles, band, steps, features;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// As Multiply64x192x16, but a too has k in memory's contiguous dimension.
__device__ __forceinline__ void MultiplyRows(float (&d)[96], uint32_t a, uint32_t b, bool add) {
#define D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define D16(i) D4(i), D4((i) + 4), D4((i) + 8), D4((i) + 12)
  asm volatile(
      "{\n.reg .pred add;\n.reg .b64 da, db;\n"
      "mov.b64 da, {%96, %99};\nmov.b64 db, {%97, %99};\nsetp.ne.b32 add, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16"
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "
      "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "
      "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, "
      "%69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "
      "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, da, db, add, 1, 1, 0, 0;\n}"
      : D16(0), D16(16), D16(32), D16(48), D16(64), D16(80)
      : "r"(a), "r"(b), "r"(add ? 1 : 0), "n"(kDescriptorHigh));
#undef D16
#undef D4
}

__device__ __forceinline__ int2 PlaceOf(const Cut& cut, int tile, int rank) {
  const int per_band = cut.band * cut.token_tiles, first = tile / per_band * cut.band;
  const int wide = min(cut.band, cut.pairs - first), within = tile % per_band;
  return {((first + within % wide) * kCluster + rank) * kFeatures, within / wide * kTokens};
}
#endif

// kGelu: two results; else the product with its bias alone, to `pre`.
template <bool kGelu>
__global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 1)
    Kernel(const __grid_constant__ Maps maps, const bf16* bias, Cut cut) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ alignas(8) uint64_t barriers[2 * kStages + 4 + 4];
  const int group = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  auto stages = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  stages = (stages + 1023) / 1024 * 1024;
  auto full = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
  asm volatile("" : "+r"(stages), "+r"(full));
  const uint32_t quarters = stages + kStages * kStageBytes;
  const uint32_t empty = full + 8 * kStages, written = empty + 8 * kStages, free = written + 16,
                 turn = free + 16, finish = turn + 16;
  const int rank = RankInCluster(), tiles = cut.pairs * cut.token_tiles;
  const int first = static_cast<int>(blockIdx.x) / kCluster,
            stride = static_cast<int>(gridDim.x) / kCluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(full + 8 * i, 1);
      InitBarrier(empty + 8 * i, kWarps * kCluster);
    }
    for (int i = 0; i < 2; ++i) {
      InitBarrier(written + 8 * i, kWarps);
      InitBarrier(free + 8 * i, 1);
      InitBarrier(turn + 8 * i, kWarps);
      InitBarrier(finish + 8 * i, kWarps);
    }
    PublishBarriers();
  }
  MeetCluster();
  if (group == 0) {
    GiveRegisters<24>();
    if (threadIdx.x == 0) {
      int stage = 0, parity = 1;
      for (int tile = first; tile < tiles; tile += stride) {
        const int2 at = PlaceOf(cut, tile, rank);
        for (int step = 0; step < cut.steps; ++step) {
          WaitPhase(empty + 8 * stage, parity);
          const uint32_t bar = full + 8 * stage, weight = stages + stage * kStageBytes;
          ArriveAndExpect(bar, kStageBytes);
          CopyTile(weight, &maps.weight, step * kInner, at.x, bar);
          CopyTileToBoth(weight + kWeightBytes + rank * kHalfTokens * kRow, &maps.x, step * kInner,
                         at.y + rank * kHalfTokens, bar);
          if (++stage < kStages) continue;
          stage = 0;
          parity ^= 1;
        }
      }
    }
    if (threadIdx.x == 32) {
      for (int tile = first; tile < tiles; tile += stride) {
        const int2 at = PlaceOf(cut, tile, rank);
        for (int q = 0; q < 4; ++q) {
          const int part = q % 2, x = at.x + q / 2 * 64, y = at.y + part * kHalfTokens;
          WaitPhase(written + 8 * part, q / 2);
          StoreTile(&maps.pre, x, y, quarters + 2 * part * kQuarterBytes);
          if (kGelu) StoreTile(&maps.y, x, y, quarters + (2 * part + 1) * kQuarterBytes);
          WaitStoresRead();
          Arrive(free + 8 * part);
        }
      }
      WaitStores();
    }
  } else {
    TakeRegisters<240>();
    const int mine = group - 1, lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const uint32_t base = __shfl_sync(~0U, stages, 0) / 16;
    float sums[2][96];
    int steps = mine * cut.steps, my_turn = mine == 0 ? 1 : 0;
    for (int tile = first + mine * stride; tile < tiles;
         tile += 2 * stride, steps += 2 * cut.steps, my_turn ^= 1) {
      const int2 at = PlaceOf(cut, tile, rank);
      float bias_of[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int feature = at.x + i / 2 * 64 + warp * 16 + lane / 4 + i % 2 * 8;
        bias_of[i] = feature < cut.features ? __bfloat162float(bias[feature]) : 0;
      }
      WaitPhase(turn + 8 * mine, my_turn);
      int stage = steps % kStages, parity = steps / kStages & 1, last = -1;
      for (int step = 0; step < cut.steps; ++step) {
        WaitPhase(full + 8 * stage, parity);
        const uint32_t weight = base + stage * (kStageBytes / 16), x = weight + kWeightBytes / 16;
        BeginProducts();
#pragma unroll
        for (int k = 0; k < kInner / 16; ++k) {
          const bool add = step != 0 || k != 0;
          MultiplyRows(sums[0], weight + k * 2, x + k * 2, add);
          MultiplyRows(sums[1], weight + kWeightBytes / 2 / 16 + k * 2, x + k * 2, add);
        }
        if (step + 1 == cut.steps && lane == 0) Arrive(turn + 8 * (1 - mine));
        EndProducts<1>();
        if (last >= 0 && lane < kCluster) ArriveAt(empty + 8 * last, lane);
        last = stage;
        if (++stage < kStages) continue;
        stage = 0;
        parity ^= 1;
      }
      EndProducts<0>();
      TouchAccumulators(sums[0]);
      TouchAccumulators(sums[1]);
      if (lane < kCluster) ArriveAt(empty + 8 * last, lane);
      WaitPhase(finish + 8 * mine, my_turn);
      const int row = lane / 16 * 8 + lane % 8, chunk = (2 * warp + lane / 8 % 2) ^ (lane % 8);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int half = q / 2, part = q % 2;
        WaitPhase(free + 8 * part, 1 - half);
        if (q == 3 && lane == 0) Arrive(finish + 8 * (1 - mine));
        const uint32_t to = quarters + 2 * part * kQuarterBytes + row * kRow + chunk * 16;
#pragma unroll
        for (int j = 0; j < kHalfTokens / 16; ++j) {
          constexpr float c0 = 0.7978845608028654F, c1 = c0 * 0.044715F;
          float v[8], s[8];
          uint32_t words[4];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            v[i] = sums[half][part * kHalfTokens / 2 + j * 8 + i] + bias_of[2 * half + i / 2 % 2];
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) words[i] = NarrowPair<Bf16>(v[2 * i], v[2 * i + 1]);
          StoreTransposed(to + j * 16 * kRow, words);
          if constexpr (kGelu) {
#pragma unroll
            for (int i = 0; i < 8; ++i) s[i] = v[i] * fmaf(c1, v[i] * v[i], c0);
#pragma unroll
            for (int i = 0; i < 8; ++i) asm volatile("tanh.approx.f32 %0, %0;" : "+f"(s[i]));
#pragma unroll
            for (int i = 0; i < 8; ++i) v[i] *= fmaf(0.5F, s[i], 0.5F);
#pragma unroll
            for (int i = 0; i < 4; ++i) words[i] = NarrowPair<Bf16>(v[2 * i], v[2 * i + 1]);
            StoreTransposed(to + kQuarterBytes + j * 16 * kRow, words);
          }
        }
        ShowToTiles();
        __syncwarp();
        if (lane == 0) Arrive(written + 8 * part);
      }
    }
  }
  __syncwarp();
  MeetCluster();
#endif
}

CUtensorMap MapOf(void* data, int64_t rows, int64_t columns, uint32_t box_rows) {
  static const auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    CUDA_OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                             cudaEnableDefault, &found));
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }();
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns * 2)};
  const cuuint32_t box[] = {64, box_rows}, steps[] = {1, 1};
  if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    std::fprintf(stderr, "no tensor map\n");
    std::exit(1);
  }
  return map;
}

// |a - b| / |b| of two arrays.
double Difference(const bf16* a, const bf16* b, int64_t count) {
  std::vector<bf16> x(static_cast<size_t>(count)), y(x.size());
  CUDA_OK(cudaMemcpy(x.data(), a, x.size() * sizeof(bf16), cudaMemcpyDefault));
  CUDA_OK(cudaMemcpy(y.data(), b, y.size() * sizeof(bf16), cudaMemcpyDefault));
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double u = __bfloat162float(x[i]), v = __bfloat162float(y[i]);
    error += (u - v) * (u - v);
    norm += v * v;
  }
  return std::sqrt(error / norm);
}

void Main(double seconds) {
  cublasLtHandle_t handle = nullptr;
  BLAS_OK(cublasLtCreate(&handle));
  constexpr size_t kWorkspace = size_t{64} << 20;
  void* workspace = nullptr;
  CUDA_OK(cudaMalloc(&workspace, kWorkspace));
  cudaStream_t stream = nullptr;
  CUDA_OK(cudaStreamCreate(&stream));
  std::printf("fc1 forward, us: bias | GELU_AUX_BIAS || own with bias | with GELU too\n");
  struct Shape {
    int64_t tokens, h;
  };
  for (const Shape z :
       {Shape{1000, 200}, {32768, 768}, {65536, 1024}, {16384, 1600}, {16384, 2048}}) {
    const int64_t f = 4 * z.h, all = z.tokens * f;
    bf16* x = RandomBf16(z.tokens * z.h, 1);
    bf16* w = RandomBf16(f * z.h, 2, 0.05F);
    bf16* bias = RandomBf16(f, 3);
    bf16 *pre = Allocate<bf16>(all), *y = Allocate<bf16>(all), *own_pre = Allocate<bf16>(all),
         *own_y = Allocate<bf16>(all);
    Product p{.transpose_a = true, .m = f, .n = z.tokens, .k = z.h, .a = w, .b = x, .d = y};
    p.bias = bias;
    p.epilogue = CUBLASLT_EPILOGUE_BIAS;
    Gemm plain(handle, workspace, kWorkspace, p);
    p.aux = pre;
    p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    Gemm fused(handle, workspace, kWorkspace, p);
    plain.Tune(stream);
    fused.Tune(stream);
    const Maps maps{.weight = MapOf(w, f, z.h, kFeatures),
                    .x = MapOf(x, z.tokens, z.h, kHalfTokens),
                    .pre = MapOf(own_pre, z.tokens, f, kHalfTokens),
                    .y = MapOf(own_y, z.tokens, f, kHalfTokens)};
    const Cut cut{static_cast<int>((f + 255) / 256),
                  static_cast<int>((z.tokens + kTokens - 1) / kTokens),
                  static_cast<int>(std::max<int64_t>(1, (8 << 20) / (512 * z.h))),
                  static_cast<int>((z.h + kInner - 1) / kInner), static_cast<int>(f)};
    const auto own = [&](auto kernel) {
      CUDA_OK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
      kernel<<<132, kThreads, kShared, stream>>>(maps, bias, cut);
      CUDA_OK(cudaGetLastError());
    };
    CUDA_OK(cudaMemset(own_pre, 0xFF, static_cast<size_t>(all) * 2));
    CUDA_OK(cudaMemset(own_y, 0xFF, static_cast<size_t>(all) * 2));
    fused.Run(stream);
    own(Kernel<true>);
    CUDA_OK(cudaStreamSynchronize(stream));
    std::printf("T %5ld h %4ld: differs by %.2g, %.2g", z.tokens, z.h,
                Difference(own_pre, pre, all), Difference(own_y, y, all));
    for (int turn = 0; z.tokens > 1000 && turn < 2; ++turn) {
      std::printf(" : %7.1f | %7.1f || %7.1f | %7.1f",
                  HotMicros(stream, seconds, [&] { plain.Run(stream); }),
                  HotMicros(stream, seconds, [&] { fused.Run(stream); }),
                  HotMicros(stream, seconds, [&] { own(Kernel<false>); }),
                  HotMicros(stream, seconds, [&] { own(Kernel<true>); }));
    }
    std::printf("\n");
    for (bf16* q : {x, w, bias, pre, y, own_pre, own_y}) CUDA_OK(cudaFree(q));
  }
}

}  // namespace
}  // namespace experiment

int main() { experiment::Main(0.8); }
