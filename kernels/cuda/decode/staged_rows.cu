// Products of 9 to kMaxFewRows rows of x in 16 bits, by way of shared memory: each block reads all
// of x, so that it takes several tiles of w; the loads of some steps are on their way, to shared
// memory, where each thread reads what itself has copied. Registers alone hold too few loads for
// that many rows.
#include "kernels/cuda/decode/few_rows.cuh"
#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/dependent_launch.cuh"

namespace mt::kernels::cuda {
namespace {

// The sums of a lane: columns row, row, row + 8, row + 8 of y (row = lane / 4), its rows
// 2 (lane % 4) and one further.
template <class S>
__device__ __forceinline__ void AddStep(uint4 w0, uint4 w1, uint4 x, float (&sum)[4]) {
  Multiply<S>(sum, w0.x, w1.x, w0.y, w1.y, x.x, x.y);
  Multiply<S>(sum, w0.z, w1.z, w0.w, w1.w, x.z, x.w);
}

template <int kTiles>
using Part = float[kTiles * kTileRows][kTileColumns + 1];

// Adds up the warps' sums of a tile of w, in their order, and stores y.
template <int kWarps, class S, int kTiles>
__device__ __forceinline__ void StoreSums(const FewRowsProduct<S>& p, int64_t tile,
                                          const float (&sum)[kTiles][4], Part<kTiles>* parts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, row = lane / 4;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      parts[threadIdx.x / kWarp][t * kTileRows + lane % 4 * 2 + i % 2][row + i / 2 * 8] = sum[t][i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.rows * kTileColumns; i += kWarps * kWarp) {
    const int r = i / kTileColumns, c = i % kTileColumns;
    if (tile + c >= p.n) continue;
    float all = p.bias == nullptr ? 0.0F : Widen(p.bias[tile + c]);
#pragma unroll
    for (int part = 0; part < kWarps; ++part) all += parts[part][r][c];
    p.y[r * p.n + tile + c] = Narrow<S>(all);
  }
}

// Grid: kSets tiles of kTileColumns.
template <class S, int kTiles, int kSets, int kWarps>
struct Staged {
  static constexpr int kStages = 4;
  static constexpr int kVectors = 2 * kSets + kTiles;  // of 16 bytes, of a step and a thread
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int64_t kBytes = int64_t{kStages} * kVectors * kThreads * sizeof(uint4);
  static_assert(kBytes >= kWarps * int64_t{sizeof(Part<kTiles>)});
};

template <class S, int kTiles, int kSets, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) StagedFewRowsKernel(FewRowsProduct<S> p) {
  using Form = Staged<S, kTiles, kSets, kWarps>;
  constexpr int kVectors = Form::kVectors, kStages = Form::kStages;
  extern __shared__ uint4 ring[];  // [kStages][kVectors][threads]
  LetNextKernelBegin();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kSets * kTileColumns);
  // The begin of w comes while kernels before this one still run; more of it would be read twice.
  if (threadIdx.x < kSets * kTileColumns && first + threadIdx.x < p.n) {
    constexpr int64_t kMost = 1024;  // bytes of a row of w
    const int64_t bytes = min(p.k * static_cast<int64_t>(sizeof(S)), kMost);
    BringToL2(p.w + (first + threadIdx.x) * p.k, static_cast<uint32_t>(bytes));
  }
  WaitForKernelBefore();
  const int row = static_cast<int>(threadIdx.x) % kWarp / 4;
  const int64_t at = threadIdx.x % 4 * kGroup;
  const S* from[kVectors];  // tiles of w, two rows each, then x
#pragma unroll
  for (int i = 0; i < 2 * kSets; ++i)
    from[i] = p.w + min(first + i * kTileRows + row, p.n - 1) * p.k + at;
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
    from[2 * kSets + t] = p.x + min(t * kTileRows + row, p.rows - 1) * p.k + at;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int steps = max(0, (static_cast<int>(p.k / kTileDepth) - warp + kWarps - 1) / kWarps);
  const auto start = [&](int step) {
    if (step < steps) {
      const int64_t k = (warp + static_cast<int64_t>(step) * kWarps) * kTileDepth;
      uint4* const to = ring + step % kStages * (kVectors * Form::kThreads) + threadIdx.x;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) CopyAsync(to + j * Form::kThreads, from[j] + k);
    }
    CommitCopies();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) start(step);
  float sum[kSets][kTiles][4] = {};
  for (int step = 0; step < steps; ++step) {
    WaitCopies<kStages - 2>();
    const uint4* const here = ring + step % kStages * (kVectors * Form::kThreads) + threadIdx.x;
    uint4 v[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) v[j] = here[j * Form::kThreads];
    start(step + kStages - 1);
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
        AddStep<S>(v[2 * s], v[2 * s + 1], v[2 * kSets + t], sum[s][t]);
    }
  }
  WaitCopies<0>();
#pragma unroll
  for (int s = 0; s < kSets; ++s) {
    __syncthreads();  // the parts lie where the ring was, or those before
    StoreSums<kWarps>(p, first + s * kTileColumns, sum[s], reinterpret_cast<Part<kTiles>*>(ring));
  }
}

int AttributeOf(const Stream& stream, cudaDeviceAttr attribute) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, CudaStreamOf(stream).ordinal()));
  return value;
}

// False where the device has too little shared memory.
template <class S, int kTiles, int kSets, int kWarps>
bool LaunchStaged(const Stream& stream, const FewRowsProduct<S>& p) {
  using Form = Staged<S, kTiles, kSets, kWarps>;
  if (AttributeOf(stream, cudaDevAttrMaxSharedMemoryPerBlockOptin) < Form::kBytes) return false;
  const auto kernel = StagedFewRowsKernel<S, kTiles, kSets, kWarps>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(Form::kBytes)));
  const auto blocks = static_cast<unsigned>(base::CeilDiv(p.n, int64_t{kSets} * kTileColumns));
  LaunchDependent(stream, kernel,
                  {.grid = blocks, .threads = Form::kThreads, .shared_bytes = Form::kBytes}, p);
  return true;
}

// The tiles of w a block that leave the busiest multiprocessor the fewest loads: rounds of blocks,
// each with w's rows and x's.
int SetsOf(const Stream& stream, int64_t tiles, int x_tiles) {
  const int64_t multiprocessors = AttributeOf(stream, cudaDevAttrMultiProcessorCount);
  int best = 1;
  int64_t least = INT64_MAX;
  for (int sets = 1; sets <= 4; ++sets) {
    const int64_t rounds = base::CeilDiv(base::CeilDiv(tiles, int64_t{sets}), multiprocessors);
    const int64_t loads = rounds * (2 * sets + x_tiles);
    if (loads >= least) continue;
    least = loads;
    best = sets;
  }
  return best;
}

}  // namespace

template <class S, int kTiles>
bool LaunchStagedRows(const Stream& stream, const FewRowsProduct<S>& p) {
  const int64_t tiles = base::CeilDiv(p.n, int64_t{kTileColumns});
  if (tiles <= kFewTiles) return LaunchStaged<S, kTiles, 1, 16>(stream, p);
  const int sets = SetsOf(stream, tiles, kTiles);
  if (sets == 4) return LaunchStaged<S, kTiles, 4, 8>(stream, p);
  if (sets == 3) return LaunchStaged<S, kTiles, 3, 8>(stream, p);
  if (sets == 2) return LaunchStaged<S, kTiles, 2, 8>(stream, p);
  return LaunchStaged<S, kTiles, 1, 8>(stream, p);
}

template bool LaunchStagedRows<Bf16, 2>(const Stream&, const FewRowsProduct<Bf16>&);
template bool LaunchStagedRows<Bf16, 4>(const Stream&, const FewRowsProduct<Bf16>&);
template bool LaunchStagedRows<F16, 2>(const Stream&, const FewRowsProduct<F16>&);
template bool LaunchStagedRows<F16, 4>(const Stream&, const FewRowsProduct<F16>&);

}  // namespace mt::kernels::cuda
