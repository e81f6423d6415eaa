// Products of up to kMaxFewRows rows of x with a matrix that is read once: y = x w^T + bias, summed
// in fp32. Each sum's order depends on w's shape alone, not on how many rows there are.
//
// In 16 bits the tensor cores multiply: w's rows are the matrix operand's 16 rows, x's rows its 8
// columns, so that eight rows of x cost what one costs. A sum does not care for the order of k, so
// each lane's 16 bytes of a row, as they lie in memory, are the elements of two products, and go
// straight to registers; with more than eight rows they go by way of shared memory where there is
// enough of it (staged_rows.cu). The warps of a block share k. In fp32, and where rows are no whole
// vectors, a warp makes a few columns of y, and its lanes share k.
#include "kernels/cuda/decode/decode.h"
#include "kernels/cuda/decode/few_rows.cuh"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/numeric.cuh"

namespace mt::kernels::cuda {
namespace {

// Adds kSteps steps of k to the sums, from `k` on; their loads are on their way together. w has the
// two rows of each tile of columns.
template <class S, int kSteps, int kTiles, int kSets>
__device__ __forceinline__ void AddSteps(const S* const (&w)[kSets][2], const S* const (&x)[kTiles],
                                         int64_t k, int64_t stride,
                                         float (&sum)[kSets][kTiles][4]) {
  uint4 a[kSteps][kSets][2], b[kSteps][kTiles];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      a[i][s][0] = __ldcs(reinterpret_cast<const uint4*>(w[s][0] + k + i * stride));
      a[i][s][1] = __ldcs(reinterpret_cast<const uint4*>(w[s][1] + k + i * stride));
    }
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      b[i][t] = *reinterpret_cast<const uint4*>(x[t] + k + i * stride);
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      const uint4 a0 = a[i][s][0], a1 = a[i][s][1];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        Multiply<S>(sum[s][t], a0.x, a1.x, a0.y, a1.y, b[i][t].x, b[i][t].y);
        Multiply<S>(sum[s][t], a0.z, a1.z, a0.w, a1.w, b[i][t].z, b[i][t].w);
      }
    }
  }
}

// Grid: kSets tiles of kTileColumns. kTiles tiles of kTileRows rows; what is more than `rows` is
// computed of the last row again and not stored. k is a multiple of kTileDepth, operands are
// aligned. Each block reads all of x, so that with many rows a block takes several tiles of w.
template <class S, int kTiles, int kSets, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) TensorFewRowsKernel(FewRowsProduct<S> p) {
  LetNextKernelBegin();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kSets * kTileColumns);
  // With many rows the begin of w comes while kernels before this one still run; more of it would
  // be read twice.
  if (kTiles > 1 && threadIdx.x < kSets * kTileColumns && first + threadIdx.x < p.n) {
    constexpr int64_t kMost = 1024;  // bytes of a row of w
    const int64_t bytes = min(p.k * static_cast<int64_t>(sizeof(S)), kMost);
    BringToL2(p.w + (first + threadIdx.x) * p.k, static_cast<uint32_t>(bytes));
  }
  WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = lane / 4;  // of w (and that eight further), and of x in each tile
  const int64_t at = lane % 4 * kGroup;
  const S *w[kSets][2], *x[kTiles];
#pragma unroll
  for (int s = 0; s < kSets; ++s) {
    w[s][0] = p.w + min(first + s * kTileColumns + row, p.n - 1) * p.k + at;
    w[s][1] = p.w + min(first + s * kTileColumns + row + 8, p.n - 1) * p.k + at;
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) x[t] = p.x + min(t * kTileRows + row, p.rows - 1) * p.k + at;
  float sum[kSets][kTiles][4] = {};
  constexpr int kSteps = kSets == 1 && kTiles < 4 ? 4 : 2;
  constexpr int64_t kStride = kWarps * kTileDepth;
  int64_t k = warp * kTileDepth;
  for (; k + (kSteps - 1) * kStride < p.k; k += kSteps * kStride)
    AddSteps<S, kSteps, kTiles, kSets>(w, x, k, kStride, sum);
  for (; k < p.k; k += kStride) AddSteps<S, 1, kTiles, kSets>(w, x, k, kStride, sum);
  // sum[s][t]: columns row, row, row + 8, row + 8 of y, its rows 2 (lane % 4) and one further.
  __shared__ float parts[kWarps][kTiles * kTileRows][kTileColumns + 1];
#pragma unroll
  for (int s = 0; s < kSets; ++s) {
    if (s > 0) __syncthreads();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        parts[warp][t * kTileRows + lane % 4 * 2 + i % 2][row + i / 2 * 8] = sum[s][t][i];
    }
    __syncthreads();
    const int64_t tile = first + s * kTileColumns;
    for (int i = static_cast<int>(threadIdx.x); i < p.rows * kTileColumns; i += kWarps * kWarp) {
      const int r = i / kTileColumns, c = i % kTileColumns;
      if (tile + c >= p.n) continue;
      float all = p.bias == nullptr ? 0.0F : Widen(p.bias[tile + c]);
#pragma unroll
      for (int part = 0; part < kWarps; ++part) all += parts[part][r][c];
      p.y[r * p.n + tile + c] = Narrow<S>(all);
    }
  }
}

template <class S, int kTiles, int kSets, int kWarps>
void LaunchSets(const Stream& stream, const FewRowsProduct<S>& p) {
  const auto blocks = static_cast<unsigned>(base::CeilDiv(p.n, int64_t{kSets} * kTileColumns));
  LaunchDependent(stream, TensorFewRowsKernel<S, kTiles, kSets, kWarps>, {blocks, kWarps * kWarp},
                  p);
}

template <class S, int kTiles>
void LaunchTensor(const Stream& stream, const FewRowsProduct<S>& p) {
  // Where tiles are fewer than multiprocessors, more warps share k.
  const bool few = base::CeilDiv(p.n, int64_t{kTileColumns}) <= kFewTiles;
  if constexpr (kTiles > 1) {
    if (LaunchStagedRows<S, kTiles>(stream, p)) return;
    if (!few) return LaunchSets<S, kTiles, 2, 8>(stream, p);
  }
  if (few) return LaunchSets<S, kTiles, 1, 16>(stream, p);
  LaunchSets<S, kTiles, 1, 8>(stream, p);
}

constexpr int kPlainWarps = 4;    // of a block
constexpr int kPlainColumns = 2;  // of a warp

// kRows is `rows` or more; what is more is computed of the last row again and not stored.
template <class S, int kRows, Access kAccess>
__global__ void __launch_bounds__(kPlainWarps* kWarp) PlainFewRowsKernel(FewRowsProduct<S> p) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t first =
      (static_cast<int64_t>(blockIdx.x) * kPlainWarps + threadIdx.x / kWarp) * kPlainColumns;
  if (first >= p.n) return;
  const S* w[kPlainColumns];
  const S* x[kRows];
#pragma unroll
  for (int c = 0; c < kPlainColumns; ++c) w[c] = p.w + min(first + c, p.n - 1) * p.k;
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = p.x + min(r, p.rows - 1) * p.k;
  float sum[kRows][kPlainColumns] = {};
#pragma unroll(kRows <= 2 ? 4 : 2)
  for (int64_t at = lane * kGroup; at < p.k; at += kWarp * kGroup) {
    const int count = static_cast<int>(min(p.k - at, int64_t{kGroup}));
    Float8 wide[kPlainColumns];
#pragma unroll
    for (int c = 0; c < kPlainColumns; ++c) wide[c] = Load<kAccess>(w[c] + at, count);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Float8 one = Load<kAccess>(x[r] + at, count);
#pragma unroll
      for (int c = 0; c < kPlainColumns; ++c) {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) sum[r][c] = fmaf(one.v[i], wide[c].v[i], sum[r][c]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kPlainColumns; ++c) {
      float all = sum[r][c];
#pragma unroll
      for (int half = kWarp / 2; half > 0; half /= 2) all += __shfl_xor_sync(~0U, all, half);
      if (lane != r * kPlainColumns + c || r >= p.rows || first + c >= p.n) continue;
      const float bias = p.bias == nullptr ? 0.0F : Widen(p.bias[first + c]);
      p.y[r * p.n + first + c] = Narrow<S>(all + bias);
    }
  }
}

template <class S, int kRows>
void LaunchPlain(const Stream& stream, const FewRowsProduct<S>& p, bool aligned) {
  static_assert(kRows * kPlainColumns <= kWarp, "a lane stores one result");
  const int64_t blocks = base::CeilDiv(p.n, int64_t{kPlainWarps} * kPlainColumns);
  LaunchDependent(stream,
                  aligned ? PlainFewRowsKernel<S, kRows, Access::kVector>
                          : PlainFewRowsKernel<S, kRows, Access::kElements>,
                  {static_cast<unsigned>(blocks), kPlainWarps * kWarp}, p);
}

template <class S>
void Launch(const Stream& stream, const LinearForwardArgs& a) {
  FewRowsProduct<S> p{.n = a.w.shape[0],
                      .k = a.w.shape[1],
                      .rows = static_cast<int>(a.x.shape[0]),
                      .x = a.x.Data<S>(),
                      .w = a.w.Data<S>(),
                      .bias = DataOrNull<S>(a.bias),
                      .y = a.y.Data<S>()};
  const bool aligned = IsAligned16(p.x) && IsAligned16(p.w) && p.k % kGroup == 0;
  if constexpr (sizeof(S) == 2) {
    if (aligned && p.k % kTileDepth == 0) {
      if (p.rows <= kTileRows) return LaunchTensor<S, 1>(stream, p);
      if (p.rows <= 2 * kTileRows) return LaunchTensor<S, 2>(stream, p);
      static_assert(kMaxFewRows == 4 * kTileRows);
      return LaunchTensor<S, 4>(stream, p);
    }
  }
  // Eight rows at a time.
  for (int rest = p.rows; rest > 0; rest -= 8) {
    p.rows = min(rest, 8);
    if (p.rows == 1) {
      LaunchPlain<S, 1>(stream, p, aligned);
    } else if (p.rows <= 4) {
      LaunchPlain<S, 4>(stream, p, aligned);
    } else {
      LaunchPlain<S, 8>(stream, p, aligned);
    }
    p.x += 8 * p.k;
    p.y += 8 * p.n;
  }
}

}  // namespace

void LaunchFewRows(const Stream& stream, const LinearForwardArgs& args) {
  ForGpuType(args.x.dtype, "ForwardFewRows",
             [&](auto zero) { Launch<decltype(zero)>(stream, args); });
  CheckLaunch("ForwardFewRows");
}

}  // namespace mt::kernels::cuda
