// Decoding: products of few rows, split over threads by columns, and attention over a cache, split
// by rows and heads. No sum is cut, so the bits do not depend on the number of threads.
#include <algorithm>
#include <cstring>

#include "common/base/math.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/decode_loops.h"
#include "kernels/cpu/staging.h"

namespace mt::kernels::cpu {
namespace {

static_assert(kFewRows == kMaxFewRows);

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
void StoreKeys(const AttentionDecodeArgs& a) {
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

template <class T>
void DecodeRow(const AttentionDecodeArgs& a, int64_t row, int64_t head, T* logits) {
  const int64_t kv_head = head / (a.a / a.g);
  const int64_t last = a.positions.Data<int32_t>()[row];
  DecodeHeadLoop<T>({.d = a.d,
                     .first = a.window > 0 ? std::max<int64_t>(0, last + 1 - a.window) : 0,
                     .last = last,
                     .scale = static_cast<T>(a.scale),
                     .slope = a.slopes ? a.slopes.Data<T>()[head] : T{0},
                     .q = a.qkv.Data<T>() + row * a.qkv.shape[1] + head * a.d,
                     .k = CacheHead<T>(a, a.k_cache, row, kv_head),
                     .v = CacheHead<T>(a, a.v_cache, row, kv_head),
                     .logits = logits,
                     .o = a.o.Data<T>() + (row * a.a + head) * a.d});
}

}  // namespace

void CpuLinear::ForwardFewRows(Stream& stream, const LinearForwardArgs& a) const {
  const int64_t rows = a.x.shape[0];
  CHECK(rows >= 1 && rows <= kMaxFewRows) << rows << " rows";
  if (IsHalf(a.x.dtype)) return Forward(stream, a);
  CHECK(a.y.shape[0] == rows && a.y.shape[1] == a.w.shape[0] && a.x.shape[1] == a.w.shape[1]);
  ForAccumulatorType(a.x.dtype, "ForwardFewRows", [&](auto zero) {
    using T = decltype(zero);
    const FewRows<T> product{.rows = rows,
                             .n = a.w.shape[0],
                             .k = a.w.shape[1],
                             .x = a.x.Data<T>(),
                             .w = a.w.Data<T>(),
                             .bias = DataOrNull<T>(a.bias),
                             .y = a.y.Data<T>()};
    const int64_t grain = std::max<int64_t>(1, kWeightGrain / std::max<int64_t>(1, product.k));
    pool_->ForRanges(product.n, grain,
                     [&](int64_t begin, int64_t end) { FewRowsRange<T>(product, begin, end); });
  });
}

int64_t CpuAttention::DecodeWorkspaceBytes(const AttentionDecodeArgs& a) const {
  return pool_->num_threads() * base::RoundUp(a.k_cache.shape[2], 64) * SizeOf(a.dtype);
}

void CpuAttention::Decode(Stream& /*stream*/, const AttentionDecodeArgs& a) const {
  CheckDecode(a);
  CHECK_GE(a.workspace.bytes, DecodeWorkspaceBytes(a));
  ForAccumulatorType(a.dtype, "attention Decode", [&](auto zero) {
    using T = decltype(zero);
    StoreKeys<T>(a);
    pool_->ForTasks(a.qkv.shape[0] * a.a, [&](int64_t task, int thread) {
      T* const logits =
          static_cast<T*>(a.workspace.data) + thread * base::RoundUp(a.k_cache.shape[2], 64);
      DecodeRow<T>(a, task / a.a, task % a.a, logits);
    });
  });
}

}  // namespace mt::kernels::cpu
