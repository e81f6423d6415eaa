// Elementwise loops over contiguous ranges, column sums, and conversions between float types.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

namespace mt::kernels::cpu {

// to += from. <To, From> is <T, T> with T any float type, int32_t or int64_t, or <float, a 16-bit
// type>. 16-bit sums are computed in float and rounded once.
template <class To, class From>
void AddRange(To* to, const From* from, int64_t n);

// out = the sum of `count` ranges in index order, rounded once; out may be one of them. S is any
// float type.
template <class S>
void SumRanges(S* out, const S* const* from, int count, int64_t begin, int64_t end);

// Columns [begin, end) of a matrix of `rows` rows, `stride` apart.
struct Columns {
  int64_t rows = 0, stride = 0, begin = 0, end = 0;
};

// out[c] = (add ? out[c] : 0) + the sum over rows of x, in ascending row order. <S, T>: any float
// type and its compute type.
template <class S, class T>
void ColumnSums(const S* x, const Columns& columns, bool add, T* out);

// Sets every row of y [rows, n] to `bias` [n].
template <class S, class T>
void FillRows(const S* bias, int64_t rows, int64_t n, T* y);

// to = from, rounded to nearest even where To is narrower; f64 to a 16-bit type goes through f32,
// as initial values do by definition. Instantiated for every pair of different float types.
template <class To, class From>
void ConvertRange(To* to, const From* from, int64_t n);

// A block of rows of n elements, `stride` apart.
template <class S>
struct Block {
  S* data = nullptr;
  int64_t stride = 0, rows = 0, n = 0;
};

// to = from as in ConvertRange, between float and a 16-bit type in either direction.
template <class To, class From>
void ConvertBlock(const Block<To>& to, const Block<const From>& from);

}  // namespace mt::kernels::cpu
