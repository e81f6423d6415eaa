// Residual add and norm: a row stays in registers between its passes: branch, residual, mean,
// variance (two passes), result. A warp handles a row of up to 1024 elements, a block a longer one.
// The norm reads the residual as it was rounded, because backward has only that and must compute
// with the same numbers.
// Legend: h hidden, V groups of eight elements per thread.
#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/norm_rope/add_norm_rows.cuh"
#include "kernels/ops/row_positions.h"

namespace mt::kernels::cuda {
namespace {

template <class S>
struct ForwardRows {
  int64_t rows, h;
  Divider rows_per_position;  // kernels/ops/row_positions.h
  const S* residual;
  const S* partials[kMaxPartials];
  int num_partials;
  bool rounded;  // the partials' sum, to S
  const S* bias;
  const S* position_table;
  const int32_t* positions;
  HiddenDropout dropout;
  bool layer_norm;
  float plus;  // 0 or 1, added to the gain
  float eps;
  const S* gain;
  const S* shift;
  S* residual_out;
  S* y;
  float *mean, *rstd;
};

// Adds the eight elements at `from` to *to.
template <Access kAccess, class S>
__device__ __forceinline__ void Add(const S* from, int count, Float8* to) {
  const Float8 x = Load<kAccess>(from, count);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) to->v[i] += x.v[i];
}

// Returns residual + dropout(first + other partials + bias + position row) of channels [c, c + 8),
// where `first` and `residual` are loaded and `mask` is drawn already.
template <Access kAccess, class S>
__device__ __forceinline__ Float8 CloseBranch(const ForwardRows<S>& a, int64_t row, int64_t c,
                                              int count, const Stored8<S>& first,
                                              const Stored8<S>& residual, const Philox4& mask) {
  Float8 x = Widen(first);
  for (int p = 1; p < a.num_partials; ++p) Add<kAccess>(a.partials[p] + row * a.h + c, count, &x);
  if (a.rounded) x = Widen(Narrow<S>(x));
  if (a.bias != nullptr) Add<kAccess>(a.bias + c, count, &x);
  if (a.position_table != nullptr) {
    const int64_t position = a.positions[a.rows_per_position.Quotient(static_cast<uint32_t>(row))];
    Add<kAccess>(a.position_table + position * a.h + c, count, &x);
  }
  if (a.dropout.threshold != 0) Drop(mask, a.dropout.threshold, a.dropout.scale, &x);
  const Float8 r = Widen(residual);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) x.v[i] += r.v[i];
  return x;
}

template <bool kWarpRow>
__device__ __forceinline__ float RowSum(float x, float* shared) {
  if constexpr (kWarpRow) {
    return WarpSum(x);
  } else {
    return BlockSum(x, shared);
  }
}

// The elements of its row that a thread holds.
template <int V>
struct Held {
  Float8 x[V];
  int count[V];  // elements of each group, 0 past the row's end
};

template <bool kWarpRow, int V>
__device__ __forceinline__ float Mean(const Held<V>& held, int64_t h, float* shared) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < V; ++j) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) sum += held.x[j].v[i];  // zero past the end
  }
  return RowSum<kWarpRow>(sum, shared) / static_cast<float>(h);
}

template <bool kWarpRow, bool kAligned, int V>
__device__ __forceinline__ float Variance(const Held<V>& held, float mean, int64_t h,
                                          float* shared) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    if (held.count[j] == 0) continue;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float d = held.x[j].v[i] - mean;
      squares += kAligned || i < held.count[j] ? d * d : 0;  // aligned groups are whole
    }
  }
  return RowSum<kWarpRow>(squares, shared) / static_cast<float>(h);
}

// kWarpRow: blocks of 4 warps, a row each; otherwise one row per block of up to 512 threads. 128
// bytes of shared memory.
template <class S, int V, bool kWarpRow, bool kAligned>
__global__ void __launch_bounds__(kWarpRow ? 128 : 512) ForwardKernel(const ForwardRows<S> a) {
  constexpr Access kAccess = kAligned ? Access::kVector : Access::kElements;
  __shared__ float shared[kWarp];
  // Of a decoder: the product behind it, of more than eight rows, brings weights meanwhile.
  if (gridDim.x > 8 && gridDim.x <= 32) LetNextKernelBegin();
  WaitForKernelBefore();
  const int threads = kWarpRow ? kWarp : static_cast<int>(blockDim.x);
  const int thread =
      kWarpRow ? static_cast<int>(threadIdx.x) % kWarp : static_cast<int>(threadIdx.x);
  const int64_t row = kWarpRow ? int64_t{blockIdx.x} * 4 + threadIdx.x / kWarp : blockIdx.x;
  if (row >= a.rows) return;
  MaskRow mask_row;
  if (a.dropout.threshold != 0) mask_row = MaskRowOf(a.dropout, row);
  Held<V> held;
  Stored8<S> first[V], residual[V];
  // All loads from global memory are issued before any result is used.
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const int64_t c = int64_t{j * threads + thread} * kGroup;
    held.count[j] = static_cast<int>(max(int64_t{0}, min(a.h - c, int64_t{kGroup})));
    first[j] = residual[j] = Stored8<S>{};
    if (held.count[j] == 0) continue;
    const int64_t at = row * a.h + c;
    if (a.num_partials > 0) first[j] = LoadStored<kAccess>(a.partials[0] + at, held.count[j]);
    if (a.residual != nullptr) residual[j] = LoadStored<kAccess>(a.residual + at, held.count[j]);
  }
  // The masks are computed while the loads are in flight.
  Philox4 mask[V] = {};
  if (a.dropout.threshold != 0) {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      mask[j] = MaskBits(a.dropout, mask_row, int64_t{j * threads + thread} * kGroup);
    }
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const int64_t c = int64_t{j * threads + thread} * kGroup;
    held.x[j] = Float8{};
    if (held.count[j] == 0) continue;
    const Stored8<S> out =
        Narrow<S>(CloseBranch<kAccess>(a, row, c, held.count[j], first[j], residual[j], mask[j]));
    StoreStored<kAccess>(out, a.residual_out + row * a.h + c, held.count[j]);
    held.x[j] = Widen(out);
    if constexpr (!kAligned) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) held.x[j].v[i] = i < held.count[j] ? held.x[j].v[i] : 0;
    }
  }
  if (a.gain == nullptr) return;
  const float mean = a.layer_norm ? Mean<kWarpRow>(held, a.h, shared) : 0.0F;
  const float rstd = 1.0F / sqrtf(Variance<kWarpRow, kAligned>(held, mean, a.h, shared) + a.eps);
  const float offset = -mean * rstd;
  if (thread == 0) {
    if (a.mean != nullptr) a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const int64_t c = int64_t{j * threads + thread} * kGroup;
    if (held.count[j] == 0) continue;
    const Float8 gain = Load<kAccess>(a.gain + c, held.count[j]);
    Float8 y{};
    if (a.shift != nullptr) y = Load<kAccess>(a.shift + c, held.count[j]);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      y.v[i] += fmaf(held.x[j].v[i], rstd, offset) * (gain.v[i] + a.plus);
    }
    Store<kAccess>(y, a.y + row * a.h + c, held.count[j]);
  }
}

template <class S, int V, bool kWarpRow, bool kAligned>
void Launch(const Stream& stream, const ForwardRows<S>& a) {
  const int64_t groups = base::CeilDiv(a.h, int64_t{kGroup} * V);
  const int64_t blocks = kWarpRow ? base::CeilDiv(a.rows, 4) : a.rows;
  const int64_t threads = kWarpRow ? 128 : base::RoundUp(groups, kWarp);
  LaunchDependent(stream, ForwardKernel<S, V, kWarpRow, kAligned>,
                  {static_cast<unsigned>(blocks), static_cast<unsigned>(threads)}, a);
  CheckLaunch("AddNorm");
}

constexpr int64_t kLargestHidden = int64_t{512} * 4 * kGroup;

template <class S>
void LaunchFor(const Stream& stream, const ForwardRows<S>& a, bool aligned) {
  if (!aligned) return Launch<S, 4, false, false>(stream, a);
  switch (base::CeilDiv(a.h, 256)) {
    case 1:
      return Launch<S, 1, true, true>(stream, a);
    case 2:
      return Launch<S, 2, true, true>(stream, a);
    case 3:
      return Launch<S, 3, true, true>(stream, a);
    case 4:
      return Launch<S, 4, true, true>(stream, a);
    default:
      break;
  }
  if (a.h <= int64_t{512} * 2 * kGroup) return Launch<S, 2, false, true>(stream, a);
  Launch<S, 4, false, true>(stream, a);
}

template <class S>
void Forward(const Stream& stream, const AddNormArgs& a) {
  const int64_t rows = a.residual_out.shape[0], h = a.residual_out.shape[1];
  ForwardRows<S> raw{.rows = rows,
                     .h = h,
                     .rows_per_position = Divider(
                         a.position_table ? RowsPerPosition(a.positions, rows, a.batch) : a.batch),
                     .residual = DataOrNull<S>(a.residual),
                     .num_partials = a.partials.count,
                     .rounded = a.partials.rounded,
                     .bias = DataOrNull<S>(a.bias),
                     .position_table = DataOrNull<S>(a.position_table),
                     .positions = DataOrNull<int32_t>(a.positions),
                     .dropout = RawDropout(a.dropout, rows, a.batch),
                     .layer_norm = a.kind == NormKind::kLayerNorm,
                     .plus = a.one_plus ? 1.0F : 0.0F,
                     .eps = static_cast<float>(a.eps),
                     .gain = DataOrNull<S>(a.gain),
                     .shift = DataOrNull<S>(a.shift),
                     .residual_out = a.residual_out.Data<S>(),
                     .y = DataOrNull<S>(a.y),
                     .mean = DataOrNull<float>(a.mean),
                     .rstd = DataOrNull<float>(a.rstd)};
  const bool aligned =
      FillPartials(a.partials, rows * h, raw.partials) &&
      RowsAligned<S>(h, a.residual, a.bias, a.position_table, a.gain, a.shift, a.residual_out, a.y);
  LaunchFor(stream, raw, aligned);
}

}  // namespace

void CudaAddNorm::AddNorm(Stream& stream, const AddNormArgs& a) const {
  const int64_t rows = a.residual_out.shape[0], h = a.residual_out.shape[1];
  CHECK(a.batch > 0 && rows % a.batch == 0) << rows << " rows, batch " << a.batch;
  CHECK_LE(h, kLargestHidden);
  if (a.residual) CHECK_EQ(a.residual.NumElements(), rows * h);
  if (a.bias) CHECK_EQ(a.bias.NumElements(), h);
  if (a.gain) {
    CHECK(a.gain.NumElements() == h && a.y.NumElements() == rows * h &&
          a.rstd.NumElements() == rows);
    CHECK(a.kind == NormKind::kRmsNorm || a.mean.NumElements() == rows);
  }
  if (rows == 0) return;
  CheckCountable(rows);
  ForGpuType(a.residual_out.dtype, "AddNorm",
             [&](auto zero) { Forward<decltype(zero)>(stream, a); });
}

}  // namespace mt::kernels::cuda
