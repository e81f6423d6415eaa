// Elementwise loops and column sums. Sums of 16-bit elements accumulate in f32 buffers of a few
// hundred columns that stay in the first-level cache, so each result is rounded once.
#include "kernels/cpu/loops/vector_loops.h"

#include <type_traits>

#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {
namespace {

// Conversions to and from f64 go through f32.
MT_ALWAYS_INLINE void Convert(float from, double* to) { *to = static_cast<double>(from); }
MT_ALWAYS_INLINE void Convert(double from, float* to) { *to = static_cast<float>(from); }
template <class To>
MT_ALWAYS_INLINE void Convert(double from, To* to) {
  Narrow(static_cast<float>(from), to);
}
template <class From>
MT_ALWAYS_INLINE void Convert(From from, double* to) {
  *to = static_cast<double>(Widen(from));
}
template <class To, class From>
MT_ALWAYS_INLINE void Convert(From from, To* to) {
  Narrow(Widen(from), to);
}

}  // namespace

template <class To, class From>
void AddRange(To* __restrict__ to, const From* __restrict__ from, int64_t n) {
  if constexpr (std::is_integral_v<To>) {
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];
  } else {
    for (int64_t i = 0; i < n; ++i) Narrow(Widen(to[i]) + Widen(from[i]), &to[i]);
  }
}

template <class S>
void SumRanges(S* out, const S* const* from, int count, int64_t begin, int64_t end) {
  constexpr int64_t kChunk = 512;
  Compute<S> sum[kChunk];
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = end - at < kChunk ? end - at : kChunk;
    for (int64_t i = 0; i < n; ++i) sum[i] = Widen(from[0][at + i]);
    for (int p = 1; p < count; ++p) {
      const S* x = from[p] + at;
      for (int64_t i = 0; i < n; ++i) sum[i] += Widen(x[i]);
    }
    for (int64_t i = 0; i < n; ++i) Narrow(sum[i], &out[at + i]);
  }
}

template <class S, class T>
void ColumnSums(const S* x, const Columns& columns, bool add, T* out) {
  constexpr int64_t kStrip = 512;
  T sum[kStrip];
  for (int64_t at = columns.begin; at < columns.end; at += kStrip) {
    const int64_t n = columns.end - at < kStrip ? columns.end - at : kStrip;
    for (int64_t i = 0; i < n; ++i) sum[i] = 0;
    for (int64_t row = 0; row < columns.rows; ++row) {
      const S* __restrict__ from = x + row * columns.stride + at;
      for (int64_t i = 0; i < n; ++i) sum[i] += Widen(from[i]);
    }
    for (int64_t i = 0; i < n; ++i) out[at + i] = add ? out[at + i] + sum[i] : sum[i];
  }
}

template <class S, class T>
void FillRows(const S* __restrict__ bias, int64_t rows, int64_t n, T* __restrict__ y) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < n; ++c) y[row * n + c] = Widen(bias[c]);
  }
}

template <class To, class From>
void ConvertRange(To* __restrict__ to, const From* __restrict__ from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) Convert(from[i], &to[i]);
}

template <class To, class From>
void ConvertBlock(const Block<To>& to, const Block<const From>& from) {
  for (int64_t row = 0; row < to.rows; ++row) {
    ConvertRange(to.data + row * to.stride, from.data + row * from.stride, to.n);
  }
}

template void SumRanges<float>(float*, const float* const*, int, int64_t, int64_t);
template void ColumnSums<float, float>(const float*, const Columns&, bool, float*);
template void FillRows<float, float>(const float*, int64_t, int64_t, float*);
template void SumRanges<double>(double*, const double* const*, int, int64_t, int64_t);
template void ColumnSums<double, double>(const double*, const Columns&, bool, double*);
template void FillRows<double, double>(const double*, int64_t, int64_t, double*);
template void SumRanges<Bf16>(Bf16*, const Bf16* const*, int, int64_t, int64_t);
template void ColumnSums<Bf16, float>(const Bf16*, const Columns&, bool, float*);
template void FillRows<Bf16, float>(const Bf16*, int64_t, int64_t, float*);
template void SumRanges<F16>(F16*, const F16* const*, int, int64_t, int64_t);
template void ColumnSums<F16, float>(const F16*, const Columns&, bool, float*);
template void FillRows<F16, float>(const F16*, int64_t, int64_t, float*);
template void AddRange<float, float>(float*, const float*, int64_t);
template void AddRange<double, double>(double*, const double*, int64_t);
template void AddRange<Bf16, Bf16>(Bf16*, const Bf16*, int64_t);
template void AddRange<F16, F16>(F16*, const F16*, int64_t);
template void AddRange<int32_t, int32_t>(int32_t*, const int32_t*, int64_t);
template void AddRange<int64_t, int64_t>(int64_t*, const int64_t*, int64_t);
template void AddRange<float, Bf16>(float*, const Bf16*, int64_t);
template void AddRange<float, F16>(float*, const F16*, int64_t);
template void ConvertRange<float, double>(float*, const double*, int64_t);
template void ConvertRange<float, Bf16>(float*, const Bf16*, int64_t);
template void ConvertRange<float, F16>(float*, const F16*, int64_t);
template void ConvertRange<double, float>(double*, const float*, int64_t);
template void ConvertRange<double, Bf16>(double*, const Bf16*, int64_t);
template void ConvertRange<double, F16>(double*, const F16*, int64_t);
template void ConvertRange<Bf16, float>(Bf16*, const float*, int64_t);
template void ConvertRange<Bf16, double>(Bf16*, const double*, int64_t);
template void ConvertRange<Bf16, F16>(Bf16*, const F16*, int64_t);
template void ConvertRange<F16, float>(F16*, const float*, int64_t);
template void ConvertRange<F16, double>(F16*, const double*, int64_t);
template void ConvertRange<F16, Bf16>(F16*, const Bf16*, int64_t);
template void ConvertBlock<float, Bf16>(const Block<float>&, const Block<const Bf16>&);
template void ConvertBlock<Bf16, float>(const Block<Bf16>&, const Block<const float>&);
template void ConvertBlock<float, F16>(const Block<float>&, const Block<const F16>&);
template void ConvertBlock<F16, float>(const Block<F16>&, const Block<const float>&);

}  // namespace mt::kernels::cpu
