// Elementwise pieces over contiguous ranges, column sums, conversions of 16-bit floats.
#pragma once

#include <cstdint>

namespace mt::kernels::cpu {

// to += from. T is float, double, int32_t or int64_t.
template <class T>
void AddRange(T* to, const T* from, int64_t n);

// out = the sum of `count` ranges in index order; out may be one of them.
template <class T>
void SumRanges(T* out, const T* const* from, int count, int64_t begin, int64_t end);

// Columns [begin, end) of a matrix of `rows` rows, `stride` apart.
struct Columns {
  int64_t rows = 0, stride = 0, begin = 0, end = 0;
};

// out[c] = (add ? out[c] : 0) + the sum over rows of x, rows in rising order.
template <class T>
void ColumnSums(const T* x, const Columns& columns, bool add, T* out);

// Rows [0, rows) of [rows, n] = bias.
template <class T>
void FillRows(const T* bias, int64_t rows, int64_t n, T* y);

void FloatToDouble(const float* from, double* to, int64_t n);
void DoubleToFloat(const double* from, float* to, int64_t n);

// IEEE binary16 and bfloat16 as bits; to nearest, ties to even; NaN stays NaN (quiet).
void FloatToBf16(const float* from, uint16_t* to, int64_t n);
void Bf16ToFloat(const uint16_t* from, float* to, int64_t n);
void FloatToF16(const float* from, uint16_t* to, int64_t n);
void F16ToFloat(const uint16_t* from, float* to, int64_t n);

}  // namespace mt::kernels::cpu
