#include "kernels/cpu/loops/vector_loops.h"

#include "kernels/cpu/loops/fast_math.h"

namespace mt::kernels::cpu {
namespace {

MT_ALWAYS_INLINE uint32_t Bits(float x) { return __builtin_bit_cast(uint32_t, x); }
MT_ALWAYS_INLINE float FromBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Half of the last kept place is added, less one where that place is even; a carry into the
// exponent is the next binade, and past the largest number infinity, as it should be.
MT_ALWAYS_INLINE uint16_t Bf16Bits(float x) {
  const uint32_t bits = Bits(x);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40U;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
}

// Normal numbers: rebias the exponent by 112 and round 13 bits away as above. Below 2^-14 the
// addition of 0.5 leaves the subnormal's bits, correctly rounded by the adder, at the end of the
// sum. From 65520 on: infinity.
MT_ALWAYS_INLINE uint16_t F16Bits(float x) {
  const uint32_t bits = Bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  const uint32_t subnormal = Bits(FromBits(magnitude) + 0.5F) - Bits(0.5F);
  const uint32_t nan = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  uint32_t half = magnitude < (113U << 23) ? subnormal : normal;
  half = magnitude >= 0x477FF000U ? 0x7C00U : half;
  half = magnitude > 0x7F800000U ? nan : half;
  return static_cast<uint16_t>(half | sign);
}

MT_ALWAYS_INLINE float F16Value(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t magnitude = half & 0x7FFFU;
  const uint32_t normal = (magnitude << 13) + (112U << 23);
  const uint32_t special = (magnitude << 13) | 0x7F800000U;
  const uint32_t subnormal = Bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
  uint32_t bits = magnitude < 0x400U ? subnormal : normal;
  bits = magnitude >= 0x7C00U ? special : bits;
  return FromBits(bits | sign);
}

}  // namespace

template <class T>
void AddRange(T* __restrict__ to, const T* __restrict__ from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

template <class T>
void SumRanges(T* out, const T* const* from, int count, int64_t begin, int64_t end) {
  constexpr int64_t kChunk = 512;
  T sum[kChunk];
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = end - at < kChunk ? end - at : kChunk;
    for (int64_t i = 0; i < n; ++i) sum[i] = from[0][at + i];
    for (int p = 1; p < count; ++p) {
      const T* x = from[p] + at;
      for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
    }
    for (int64_t i = 0; i < n; ++i) out[at + i] = sum[i];
  }
}

template <class T>
void ColumnSums(const T* x, const Columns& columns, bool add, T* out) {
  constexpr int64_t kStrip = 512;
  T sum[kStrip];
  for (int64_t at = columns.begin; at < columns.end; at += kStrip) {
    const int64_t n = columns.end - at < kStrip ? columns.end - at : kStrip;
    for (int64_t i = 0; i < n; ++i) sum[i] = 0;
    for (int64_t row = 0; row < columns.rows; ++row) {
      const T* __restrict__ from = x + row * columns.stride + at;
      for (int64_t i = 0; i < n; ++i) sum[i] += from[i];
    }
    for (int64_t i = 0; i < n; ++i) out[at + i] = add ? out[at + i] + sum[i] : sum[i];
  }
}

template <class T>
void FillRows(const T* __restrict__ bias, int64_t rows, int64_t n, T* __restrict__ y) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < n; ++c) y[row * n + c] = bias[c];
  }
}

void FloatToDouble(const float* __restrict__ from, double* __restrict__ to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<double>(from[i]);
}
void DoubleToFloat(const double* __restrict__ from, float* __restrict__ to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}
void FloatToBf16(const float* __restrict__ from, uint16_t* __restrict__ to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Bf16Bits(from[i]);
}
void Bf16ToFloat(const uint16_t* __restrict__ from, float* __restrict__ to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = FromBits(static_cast<uint32_t>(from[i]) << 16);
}
void FloatToF16(const float* __restrict__ from, uint16_t* __restrict__ to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = F16Bits(from[i]);
}
void F16ToFloat(const uint16_t* __restrict__ from, float* __restrict__ to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = F16Value(from[i]);
}

template void SumRanges<float>(float*, const float* const*, int, int64_t, int64_t);
template void ColumnSums<float>(const float*, const Columns&, bool, float*);
template void FillRows<float>(const float*, int64_t, int64_t, float*);
template void SumRanges<double>(double*, const double* const*, int, int64_t, int64_t);
template void ColumnSums<double>(const double*, const Columns&, bool, double*);
template void FillRows<double>(const double*, int64_t, int64_t, double*);
template void AddRange<float>(float*, const float*, int64_t);
template void AddRange<double>(double*, const double*, int64_t);
template void AddRange<int32_t>(int32_t*, const int32_t*, int64_t);
template void AddRange<int64_t>(int64_t*, const int64_t*, int64_t);

}  // namespace mt::kernels::cpu
