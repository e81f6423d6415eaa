// Decoding: products of few rows, split over threads by columns, and attention over a cache, split
// by rows and heads. No sum is cut, so the bits do not depend on the number of threads.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/base/math.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/decode_loops.h"
#include "kernels/cpu/loops/vector_loops.h"
#include "kernels/cpu/staging.h"

namespace mt::kernels::cpu {
namespace {

// Elements of w that justify a thread.
constexpr int64_t kWeightGrain = int64_t{1} << 16;

void CheckDecode(const AttentionDecodeArgs& a) {
  const int64_t rows = a.qkv.shape[0];
  CHECK(a.g > 0 && a.a % a.g == 0) << a.a << " heads, " << a.g << " groups";
  CHECK_GE(a.window, 0);
  CHECK_EQ(a.qkv.shape[1], (a.a + 2 * a.g) * a.d);
  CHECK_EQ(a.o.NumElements(), rows * a.a * a.d);
  CHECK_EQ(a.sequences.NumElements(), rows);
  CHECK_EQ(a.positions.NumElements(), rows);
  CHECK_EQ(a.k_cache.shape.rank(), 4);
  CHECK(a.k_cache.shape == a.v_cache.shape);
  CHECK(a.k_cache.shape[1] == a.g && a.k_cache.shape[3] == a.d);
  if (a.slopes) CHECK_EQ(a.slopes.NumElements(), a.a);
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t sequence = a.sequences.Data<int32_t>()[row];
    const int32_t position = a.positions.Data<int32_t>()[row];
    CHECK(sequence >= 0 && sequence < a.k_cache.shape[0]) << "sequence " << sequence;
    CHECK(position >= 0 && position < a.k_cache.shape[2]) << "position " << position;
  }
}

// The first element of a key/value head of a row's sequence, in a cache.
template <class T>
T* CacheHead(const AttentionDecodeArgs& a, const Tensor& cache, int64_t row, int64_t head) {
  const int64_t sequence = a.sequences.Data<int32_t>()[row];
  return cache.Data<T>() + (sequence * a.g + head) * cache.shape[2] * a.d;
}

// Stores the keys and values of all rows.
template <class T>
void StoreRows(const AttentionDecodeArgs& a) {
  const auto bytes = static_cast<size_t>(a.d) * sizeof(T);
  for (int64_t row = 0; row < a.qkv.shape[0]; ++row) {
    const T* const k = a.qkv.Data<T>() + row * a.qkv.shape[1] + a.a * a.d;
    const int64_t at = a.positions.Data<int32_t>()[row] * a.d;
    for (int64_t head = 0; head < a.g; ++head) {
      std::memcpy(CacheHead<T>(a, a.k_cache, row, head) + at, k + head * a.d, bytes);
      std::memcpy(CacheHead<T>(a, a.v_cache, row, head) + at, k + (a.g + head) * a.d, bytes);
    }
  }
}

// Elements of the accumulator type that a thread needs: logits, and what halves are widened to.
int64_t DecodeScratch(const AttentionDecodeArgs& a) {
  const int64_t room = a.k_cache.shape[2];
  const int64_t widened = IsHalf(a.dtype) ? 2 * (room + 1) * a.d : 0;
  return base::RoundUp(room + widened, 64);
}

template <class S>
void DecodeRow(const AttentionDecodeArgs& a, int64_t row, int64_t head, Compute<S>* scratch) {
  using T = Compute<S>;
  const int64_t kv_head = head / (a.a / a.g);
  const int64_t last = a.positions.Data<int32_t>()[row];
  const int64_t first = a.window > 0 ? std::max<int64_t>(0, last + 1 - a.window) : 0;
  const S* const q = a.qkv.Data<S>() + row * a.qkv.shape[1] + head * a.d;
  const S* const k = CacheHead<S>(a, a.k_cache, row, kv_head);
  const S* const v = CacheHead<S>(a, a.v_cache, row, kv_head);
  S* const o = a.o.Data<S>() + (row * a.a + head) * a.d;
  DecodeHead<T> one{.d = a.d,
                    .first = first,
                    .last = last,
                    .scale = static_cast<T>(a.scale),
                    .slope = a.slopes ? a.slopes.Data<T>()[head] : T{0},
                    .logits = scratch};
  if constexpr (std::is_same_v<S, T>) {
    one.q = q;
    one.k = k;
    one.v = v;
    one.o = o;
    DecodeHeadLoop<T>(one);
  } else {
    const int64_t keys = last - first + 1;
    T* const wide_q = scratch + a.k_cache.shape[2];
    T* const wide_o = wide_q + a.d;
    T* const wide_k = wide_o + a.d;
    T* const wide_v = wide_k + keys * a.d;
    ConvertBlock<T, S>({wide_q, a.d, 1, a.d}, {q, a.d, 1, a.d});
    ConvertBlock<T, S>({wide_k, a.d, keys, a.d}, {k + first * a.d, a.d, keys, a.d});
    ConvertBlock<T, S>({wide_v, a.d, keys, a.d}, {v + first * a.d, a.d, keys, a.d});
    one.first = 0;
    one.last = keys - 1;
    one.q = wide_q;
    one.k = wide_k;
    one.v = wide_v;
    one.o = wide_o;
    DecodeHeadLoop<T>(one);
    ConvertBlock<S, T>({o, a.d, 1, a.d}, {wide_o, a.d, 1, a.d});
  }
}

// Up to kFewRows rows.
template <class T>
void FewRowsOf(ThreadPool& pool, const LinearForwardArgs& a) {
  const FewRows<T> product{.rows = a.x.shape[0],
                           .n = a.w.shape[0],
                           .k = a.w.shape[1],
                           .x = a.x.Data<T>(),
                           .w = a.w.Data<T>(),
                           .bias = DataOrNull<T>(a.bias),
                           .y = a.y.Data<T>()};
  const int64_t grain = std::max<int64_t>(1, kWeightGrain / std::max<int64_t>(1, product.k));
  pool.ForRanges(product.n, grain,
                 [&](int64_t begin, int64_t end) { FewRowsRange<T>(product, begin, end); });
}

// Likewise. The sums are those of f32, of what the halves are widened to; each result is rounded
// once.
template <class S>
void FewRowsOfHalves(ThreadPool& pool, const LinearForwardArgs& a) {
  constexpr int64_t kColumns = 16;  // that are widened at once
  const int64_t rows = a.x.shape[0], n = a.w.shape[0], k = a.w.shape[1];
  std::vector<float> x(static_cast<size_t>(rows * k));
  ConvertBlock<float, S>({x.data(), k, rows, k}, {a.x.Data<S>(), k, rows, k});
  const int64_t grain = std::max<int64_t>(1, kWeightGrain / std::max<int64_t>(1, kColumns * k));
  pool.ForRanges(base::CeilDiv(n, kColumns), grain, [&](int64_t begin, int64_t end) {
    std::vector<float> w(static_cast<size_t>(kColumns * k)), bias(kColumns);
    std::vector<float> y(static_cast<size_t>(rows * kColumns));
    for (int64_t first = begin * kColumns; first < std::min(n, end * kColumns); first += kColumns) {
      const int64_t count = std::min(kColumns, n - first);
      ConvertBlock<float, S>({w.data(), k, count, k}, {a.w.Data<S>() + first * k, k, count, k});
      if (a.bias) {
        ConvertBlock<float, S>({bias.data(), count, 1, count},
                               {a.bias.Data<S>() + first, count, 1, count});
      }
      FewRowsRange<float>({.rows = rows,
                           .n = count,
                           .k = k,
                           .x = x.data(),
                           .w = w.data(),
                           .bias = a.bias ? bias.data() : nullptr,
                           .y = y.data()},
                          0, count);
      ConvertBlock<S, float>({a.y.Data<S>() + first, n, rows, count},
                             {y.data(), count, rows, count});
    }
  });
}

}  // namespace

void CpuLinear::ForwardFewRows(Stream& /*stream*/, const LinearForwardArgs& a) const {
  const int64_t rows = a.x.shape[0];
  CHECK(rows >= 1 && rows <= kMaxFewRows) << rows << " rows";
  CHECK(a.y.shape[0] == rows && a.y.shape[1] == a.w.shape[0] && a.x.shape[1] == a.w.shape[1]);
  for (int64_t first = 0; first < rows; first += kFewRows) {
    LinearForwardArgs some = a;
    some.x = a.x.Rows(first, std::min(kFewRows, rows - first));
    some.y = a.y.Rows(first, some.x.shape[0]);
    ForFloatType(a.x.dtype, "ForwardFewRows", [&](auto zero) {
      using S = decltype(zero);
      if constexpr (std::is_same_v<S, Compute<S>>) {
        FewRowsOf<S>(*pool_, some);
      } else {
        FewRowsOfHalves<S>(*pool_, some);
      }
    });
  }
}

int64_t CpuAttention::DecodeWorkspaceBytes(const AttentionDecodeArgs& a) const {
  return pool_->num_threads() * DecodeScratch(a) * SizeOf(AccumulatorOf(a.dtype));
}

void CpuAttention::Decode(Stream& /*stream*/, const AttentionDecodeArgs& a) const {
  CheckDecode(a);
  CHECK_GE(a.workspace.bytes, DecodeWorkspaceBytes(a));
  ForFloatType(a.dtype, "attention Decode", [&](auto zero) {
    using S = decltype(zero);
    StoreRows<S>(a);
    pool_->ForTasks(a.qkv.shape[0] * a.a, [&](int64_t task, int thread) {
      auto* const scratch = static_cast<Compute<S>*>(a.workspace.data) + thread * DecodeScratch(a);
      DecodeRow<S>(a, task / a.a, task % a.a, scratch);
    });
  });
}

void CpuAttention::StoreKeys(Stream& /*stream*/, const AttentionDecodeArgs& a) const {
  CheckDecode(a);
  ForFloatType(a.dtype, "attention StoreKeys", [&](auto zero) { StoreRows<decltype(zero)>(a); });
}

}  // namespace mt::kernels::cpu
