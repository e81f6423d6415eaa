// Elementwise ops, column sums and conversions. All are bound by memory: one 16-byte access per
// eight 16-bit elements.
#include <type_traits>

#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/rows.h"

namespace mt::kernels::cuda {
namespace {

// Column sums of a few rows of doubles (the square sums of gradient buckets), in ascending row
// order; one thread per column.
__global__ void RowSumOfDoublesKernel(const double* __restrict__ x, int64_t rows, int64_t columns,
                                      bool add, double* __restrict__ out) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += x[row * columns + column];
  out[column] = add ? out[column] + sum : sum;
}

template <class S>
struct AddOp {
  S* to;
  const S* from;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    Float8 x = Load<kAccess>(to + first, count);
    const Float8 y = Load<kAccess>(from + first, count);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] += y.v[i];
    Store<kAccess>(x, to + first, count);
  }
};

// For types that are computed in as they are stored.
template <class T>
struct AddPlainOp {
  T* to;
  const T* from;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    for (int i = 0; i < count; ++i) to[first + i] += from[first + i];
  }
};

template <class S>
struct SumOp {
  S* out;
  const S* from[kMaxPartials];
  int count_from;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    Float8 sum = Load<kAccess>(from[0] + first, count);
    for (int p = 1; p < count_from; ++p) {
      const Float8 x = Load<kAccess>(from[p] + first, count);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) sum.v[i] += x.v[i];
    }
    Store<kAccess>(sum, out + first, count);
  }
};

struct SumDoubleOp {
  double* out;
  const double* from[kMaxPartials];
  int count_from;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    for (int i = 0; i < count; ++i) {
      double sum = from[0][first + i];
      for (int p = 1; p < count_from; ++p) sum += from[p][first + i];
      out[first + i] = sum;
    }
  }
};

template <class To, class From>
struct CastOp {
  To* to;
  const From* from;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    if constexpr (std::is_same_v<To, double> || std::is_same_v<From, double>) {
      for (int i = 0; i < count; ++i) {
        if constexpr (std::is_same_v<To, From>) {
          to[first + i] = from[first + i];
        } else if constexpr (std::is_same_v<To, double>) {
          to[first + i] = static_cast<double>(Widen(from[first + i]));
        } else {  // f64 to 16 bits goes through f32
          to[first + i] = Narrow<To>(static_cast<float>(from[first + i]));
        }
      }
    } else {
      Store<kAccess>(Load<kAccess>(from + first, count), to + first, count);
    }
  }
};

template <class S>
struct FillOp {
  S* to;
  float value;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    Float8 x;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x.v[i] = value;
    Store<kAccess>(x, to + first, count);
  }
};

template <class T>
struct FillPlainOp {
  T* to;
  T value;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    for (int i = 0; i < count; ++i) to[first + i] = value;
  }
};

template <class S>
struct FillRowsOp {
  const S* row;
  S* y;
  int64_t n;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    for (int i = 0; i < count; ++i) y[first + i] = row[(first + i) % n];
  }
};

template <class T>
void LaunchAddPlain(Stream& stream, const Tensor& to, const Tensor& from) {
  LaunchElementwise(stream, AddPlainOp<T>{to.Data<T>(), from.Data<T>()}, to.NumElements(), true,
                    "AddTo");
}

template <class T>
void LaunchFillPlain(Stream& stream, const Tensor& to, T value) {
  LaunchElementwise(stream, FillPlainOp<T>{to.Data<T>(), value}, to.NumElements(), true, "Fill");
}

// Calls body(S{}) for the float types of vector ops, including f64.
template <class Body>
void ForVectorType(DType dtype, const char* op, const Body& body) {
  if (dtype == DType::kF64) return body(double{});
  ForGpuType(dtype, op, body);
}

constexpr int kSumWarps = 8;
constexpr int kSumColumns = kWarp * kGroup;  // columns per block

// Column sums of rows [blockIdx.y * rows_per_block, ...) into out[blockIdx.y][columns]. A warp
// handles every eighth row, a lane eight columns; warps are added in order. kSumWarps warps, 8 KiB
// of shared memory.
template <class S, bool kAligned>
__global__ void __launch_bounds__(kSumWarps* kWarp)
    RowSumKernel(const S* x, int64_t rows, int64_t columns, int64_t rows_per_block, float* out) {
  __shared__ float shared[kSumWarps][kSumColumns];
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kSumColumns + lane * kGroup;
  const int count = static_cast<int>(max(int64_t{0}, min(columns - column, int64_t{kGroup})));
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * rows_per_block;
  const int64_t end = min(rows, begin + rows_per_block);
  WaitForKernelBefore();
  Float8 sum{};
  const auto add = [&sum](const Float8& v) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) sum.v[i] += v.v[i];
  };
  int64_t row = begin + warp;
  if (kAligned && count == kGroup) {
    constexpr int kAhead = 8;  // rows loaded before any is added
    for (; row + (kAhead - 1) * kSumWarps < end; row += kAhead * kSumWarps) {
      Stored8<S> ahead[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        ahead[k] =
            LoadStored<Access::kVector>(x + (row + k * kSumWarps) * columns + column, kGroup);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) add(Widen(ahead[k]));
    }
    for (; row < end; row += kSumWarps) {
      add(Load<Access::kVector>(x + row * columns + column, kGroup));
    }
  } else if (count > 0) {
    for (; row < end; row += kSumWarps) {
      add(Load<Access::kElements>(x + row * columns + column, count));
    }
  }
  LetNextKernelBegin();
#pragma unroll
  for (int i = 0; i < kGroup; ++i) shared[warp][lane * kGroup + i] = sum.v[i];
  __syncthreads();
  const int64_t mine = static_cast<int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  if (mine >= columns) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kSumWarps; ++w) total += shared[w][threadIdx.x];
  out[blockIdx.y * columns + mine] = total;
}

constexpr int kCombineSlices = 16;

struct CombineOutputs {
  float* out[kMaxSums];
};

// outs[blockIdx.y][c] = or += sum over blocks: the lanes of a warp handle 32 columns, each warp a
// slice of the blocks, added in order. 512 threads, 2 KiB of shared memory: with twice as many
// threads a call of AddNormGrad of [32768, 768] takes 0.75 us longer, because larger blocks take
// longer to start.
__global__ void __launch_bounds__(kCombineSlices* kWarp)
    CombineKernel(const float* partials, int64_t blocks, int64_t stride, int64_t n, bool add,
                  CombineOutputs outs) {
  __shared__ float shared[kCombineSlices][kWarp];
  LetNextKernelBegin();
  WaitForKernelBefore();
  float* const out = outs.out[blockIdx.y];
  if (out == nullptr) return;
  partials += blockIdx.y * n;
  const int slice = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (c < n) {
    const int64_t begin = blocks * slice / kCombineSlices,
                  end = blocks * (slice + 1) / kCombineSlices;
#pragma unroll 8
    for (int64_t b = begin; b < end; ++b) sum += partials[b * stride + c];
  }
  shared[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || c >= n) return;
  float total = 0;
#pragma unroll
  for (int s = 0; s < kCombineSlices; ++s) total += shared[s][lane];
  out[c] = add ? out[c] + total : total;
}

}  // namespace

void CombineColumns(const Stream& stream, const ColumnPartials& partials, int64_t n, GradMode mode,
                    const SumOutputs& outs) {
  CombineOutputs raw{};
  unsigned count = 0;
  for (unsigned k = 0; k < kMaxSums; ++k) {
    if (!outs[k]) continue;
    CHECK_EQ(outs[k].NumElements(), n);
    raw.out[k] = outs[k].Data<float>();
    count = k + 1;
  }
  if (count == 0) return;
  const dim3 grid(static_cast<unsigned>(base::CeilDiv(n, kWarp)), count);
  PreferShared(CombineKernel);
  LaunchDependent(stream, CombineKernel, {grid, kCombineSlices * kWarp}, partials.data,
                  partials.blocks, partials.stride, n, mode == GradMode::kAdd, raw);
  CheckLaunch("CombineColumns");
}

void FillRows(const Stream& stream, const Tensor& row, const Tensor& y) {
  CHECK(row.dtype == y.dtype && row.NumElements() == y.shape[1]);
  ForGpuType(y.dtype, "FillRows", [&](auto zero) {
    using S = decltype(zero);
    LaunchElementwise(stream, FillRowsOp<S>{row.Data<S>(), y.Data<S>(), y.shape[1]},
                      y.NumElements(), true, "FillRows");
  });
}

void CudaVector::AddTo(Stream& stream, const Tensor& to, const Tensor& from) const {
  CHECK(to.dtype == from.dtype && to.NumElements() == from.NumElements());
  switch (to.dtype) {
    case DType::kI32:
      return LaunchAddPlain<int32_t>(stream, to, from);
    case DType::kI64:
      return LaunchAddPlain<int64_t>(stream, to, from);
    case DType::kF64:
      return LaunchAddPlain<double>(stream, to, from);
    default:
      return ForGpuType(to.dtype, "AddTo", [&](auto zero) {
        using S = decltype(zero);
        LaunchElementwise(stream, AddOp<S>{to.Data<S>(), from.Data<S>()}, to.NumElements(),
                          IsAligned16(to.data) && IsAligned16(from.data), "AddTo");
      });
  }
}

void CudaVector::SumPartials(Stream& stream, const Tensor& out, const Partials& partials) const {
  CHECK(partials.count > 0 && partials.count <= kMaxPartials) << partials.count;
  bool aligned = IsAligned16(out.data);
  for (int p = 0; p < partials.count; ++p) {
    const Tensor& tensor = partials.tensor[static_cast<size_t>(p)];
    CHECK_EQ(tensor.NumElements(), out.NumElements());
    aligned = aligned && IsAligned16(tensor.data);
  }
  ForVectorType(out.dtype, "SumPartials", [&](auto zero) {
    using S = decltype(zero);
    const auto launch = [&](auto op) {
      op.out = out.Data<S>();
      op.count_from = partials.count;
      for (int p = 0; p < partials.count; ++p) {
        op.from[p] = partials.tensor[static_cast<size_t>(p)].template Data<S>();
      }
      LaunchElementwise(stream, op, out.NumElements(), aligned, "SumPartials");
    };
    if constexpr (std::is_same_v<S, double>) {
      launch(SumDoubleOp{});
    } else {
      launch(SumOp<S>{});
    }
  });
}

void CudaVector::Cast(Stream& stream, const Tensor& to, const Tensor& from) const {
  CHECK_EQ(to.NumElements(), from.NumElements());
  ForVectorType(to.dtype, "Cast", [&](auto to_zero) {
    ForVectorType(from.dtype, "Cast", [&](auto from_zero) {
      using To = decltype(to_zero);
      using From = decltype(from_zero);
      LaunchElementwise(stream, CastOp<To, From>{to.Data<To>(), from.Data<From>()},
                        to.NumElements(), IsAligned16(to.data) && IsAligned16(from.data), "Cast");
    });
  });
}

void CudaVector::Fill(Stream& stream, const Tensor& to, double value) const {
  switch (to.dtype) {
    case DType::kF64:
      return LaunchFillPlain(stream, to, value);
    case DType::kI32:
      return LaunchFillPlain(stream, to, static_cast<int32_t>(value));
    case DType::kI64:
      return LaunchFillPlain(stream, to, static_cast<int64_t>(value));
    case DType::kU8:
      return LaunchFillPlain(stream, to, static_cast<uint8_t>(value));
    default:
      return ForGpuType(to.dtype, "Fill", [&](auto zero) {
        using S = decltype(zero);
        LaunchElementwise(stream, FillOp<S>{to.Data<S>(), static_cast<float>(value)},
                          to.NumElements(), IsAligned16(to.data), "Fill");
      });
  }
}

void CudaVector::RowSum(Stream& stream, const Tensor& x, GradMode mode, const Tensor& out) const {
  const int64_t rows = x.shape[0], columns = x.shape[1];
  CHECK_EQ(out.NumElements(), columns);
  if (x.dtype == DType::kF64) {
    constexpr unsigned kThreads = 128;
    RowSumOfDoublesKernel<<<static_cast<unsigned>(base::CeilDiv(columns, int64_t{kThreads})),
                            kThreads, 0, Raw(stream)>>>(x.Data<double>(), rows, columns,
                                                        mode == GradMode::kAdd, out.Data<double>());
    return CheckLaunch("RowSum");
  }
  const int64_t column_blocks = base::CeilDiv(columns, kSumColumns);
  // Enough blocks for every SM, none with fewer than 64 rows, and no more than the stream's scratch
  // has room for.
  const int64_t fitting = kStreamScratchBytes / (columns * int64_t{sizeof(float)});
  CHECK(fitting > 0) << "RowSum of " << columns << " columns";
  const int64_t wanted = base::CeilDiv(8 * limits_.num_sms, column_blocks);
  const int64_t blocks = std::max<int64_t>(
      1, std::min({wanted, fitting, base::CeilDiv(rows, int64_t{64}), int64_t{65535}}));
  const int64_t rows_per_block = base::CeilDiv(rows, blocks);
  const CudaStream& cuda_stream = CudaStreamOf(stream);
  auto* const partials = static_cast<float*>(cuda_stream.scratch());
  ForGpuType(x.dtype, "RowSum", [&](auto zero) {
    using S = decltype(zero);
    const bool aligned = IsAligned16(x.data) && columns * int64_t{sizeof(S)} % 16 == 0;
    const dim3 grid(static_cast<unsigned>(column_blocks), static_cast<unsigned>(blocks));
    const auto kernel = aligned ? RowSumKernel<S, true> : RowSumKernel<S, false>;
    PreferShared(kernel);
    LaunchDependent(stream, kernel, {grid, kSumWarps * kWarp}, x.Data<S>(), rows, columns,
                    rows_per_block, partials);
    CheckLaunch("RowSum");
  });
  CombineColumns(stream, {.data = partials, .blocks = blocks, .stride = columns}, columns, mode,
                 {out});
}

}  // namespace mt::kernels::cuda
