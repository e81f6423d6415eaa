// Rows of w are read one after the other, so that the processor's prefetcher sees one stream; the
// rows of x stay in the first-level cache.
#include "kernels/cpu/loops/decode_loops.h"

#include "kernels/cpu/loops/fast_math.h"
#include "kernels/cpu/loops/reduce.h"

namespace mt::kernels::cpu {
namespace {

// Bytes ahead of the loads at which w is asked for: across the ends of pages, where the hardware
// prefetcher stops. 512 to 1024 were fastest (docs/benchmarks.md).
constexpr int64_t kAheadBytes = 1024;
constexpr int kRowsAtOnce = 4;  // of x: two sums each, and the registers hold no more

template <class T>
MT_ALWAYS_INLINE typename VectorOf<T>::Type LoadVector(const T* from) {
  typename VectorOf<T>::Type out;
  __builtin_memcpy(&out, from, sizeof(out));
  return out;
}

// Dot products of row `column` of w with rows [row, row + kRows) of x: two vectors of sums, of the
// even and the odd vectors of the row, then the elements behind the last pair.
template <int kRows, class T>
MT_ALWAYS_INLINE void Dots(const FewRows<T>& p, int64_t column, int64_t row) {
  using Vector = typename VectorOf<T>::Type;
  constexpr int kWidth = static_cast<int>(sizeof(Vector) / sizeof(T));
  constexpr int64_t kAhead = kAheadBytes / static_cast<int64_t>(sizeof(T));
  const T* const w = p.w + column * p.k;
  const T* const x = p.x + row * p.k;
  Vector even[kRows], odd[kRows];
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = Vector{};
  int64_t i = 0;
  for (; i + 2 * kWidth <= p.k; i += 2 * kWidth) {
    __builtin_prefetch(w + i + kAhead);
    const Vector first = LoadVector(w + i), second = LoadVector(w + i + kWidth);
    for (int r = 0; r < kRows; ++r) {
      even[r] += LoadVector(x + r * p.k + i) * first;
      odd[r] += LoadVector(x + r * p.k + i + kWidth) * second;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const Vector sums = even[r] + odd[r];
    T total = 0;
    for (int lane = 0; lane < kWidth; ++lane) total += sums[lane];
    for (int64_t rest = i; rest < p.k; ++rest) total += x[r * p.k + rest] * w[rest];
    if (p.bias != nullptr) total += p.bias[column];
    p.y[(row + r) * p.n + column] = total;
  }
}

// The first kRowsAtOnce rows bring a row of w to the first-level cache, from which the others read.
template <int kRows, class T>
void ManyDots(const FewRows<T>& p, int64_t begin, int64_t end) {
  for (int64_t column = begin; column < end; ++column) {
    if constexpr (kRows > kRowsAtOnce) {
      Dots<kRowsAtOnce>(p, column, 0);
      Dots<kRows - kRowsAtOnce>(p, column, kRowsAtOnce);
    } else {
      Dots<kRows>(p, column, 0);
    }
  }
}

}  // namespace

template <class T>
void FewRowsRange(const FewRows<T>& p, int64_t begin, int64_t end) {
  switch (p.rows) {
    case 1:
      return ManyDots<1>(p, begin, end);
    case 2:
      return ManyDots<2>(p, begin, end);
    case 3:
      return ManyDots<3>(p, begin, end);
    case 4:
      return ManyDots<4>(p, begin, end);
    case 5:
      return ManyDots<5>(p, begin, end);
    case 6:
      return ManyDots<6>(p, begin, end);
    case 7:
      return ManyDots<7>(p, begin, end);
    default:
      return ManyDots<8>(p, begin, end);
  }
}

template <class T>
void DecodeHeadLoop(const DecodeHead<T>& p) {
  const int64_t count = p.last - p.first + 1;
  for (int64_t j = 0; j < count; ++j) {
    const T bias = p.slope * static_cast<T>(p.first + j - p.last);
    p.logits[j] = p.scale * Dot(p.q, p.k + (p.first + j) * p.d, p.d) + bias;
  }
  const T max = Max(p.logits, count);
  for (int64_t j = 0; j < count; ++j) p.logits[j] = Exp(p.logits[j] - max);
  const T sum = Sum(p.logits, count);
  for (int64_t c = 0; c < p.d; ++c) p.o[c] = 0;
  for (int64_t j = 0; j < count; ++j) {
    const T weight = p.logits[j];
    const T* __restrict__ const v = p.v + (p.first + j) * p.d;
    T* __restrict__ const o = p.o;
    for (int64_t c = 0; c < p.d; ++c) o[c] += weight * v[c];
  }
  for (int64_t c = 0; c < p.d; ++c) p.o[c] /= sum;
}

template void FewRowsRange<float>(const FewRows<float>&, int64_t, int64_t);
template void FewRowsRange<double>(const FewRows<double>&, int64_t, int64_t);
template void DecodeHeadLoop<float>(const DecodeHead<float>&);
template void DecodeHeadLoop<double>(const DecodeHead<double>&);

}  // namespace mt::kernels::cpu
