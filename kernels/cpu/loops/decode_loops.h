// The arithmetic of decoding: products of a few rows with a matrix that is streamed from memory
// once, and attention of one query head over a cache. Every sum has an order of its own (reduce.h's
// lanes), whatever the number of rows. T is float or double.
#pragma once

#include <cstdint>

#include "kernels/core/random.h"

namespace mt::kernels::cpu {

inline constexpr int64_t kFewRows = 8;

// A product of x [rows, k], 1 <= rows <= kFewRows, with w [n, k].
template <class T>
struct FewRows {
  int64_t rows = 0, n = 0, k = 0;
  const T* x = nullptr;
  const T* w = nullptr;
  const T* bias = nullptr;  // [n], or null
  T* y = nullptr;           // [rows, n]
};

// Writes columns [begin, end) of y = x w^T + bias.
template <class T>
void FewRowsRange(const FewRows<T>& p, int64_t begin, int64_t end);

// One query head over the keys [first, last] of a sequence, the query being at `last`.
template <class T>
struct DecodeHead {
  int64_t d = 0;
  int64_t first = 0, last = 0;
  T scale = 1, slope = 0;  // slope * (key - query) is added to the scaled logits
  const T* q = nullptr;    // [d]
  const T* k = nullptr;    // [n, d]: position 0 on
  const T* v = nullptr;    // [n, d]
  T* logits = nullptr;     // scratch [last - first + 1]
  T* o = nullptr;          // [d]
};

// o = softmax(scale q k^T + slope (key - query)) v.
template <class T>
void DecodeHeadLoop(const DecodeHead<T>& p);

}  // namespace mt::kernels::cpu
