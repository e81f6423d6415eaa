// Parts shared by attention's forward and backward: the partition of [s, s] into tiles of logits
// that fit the second-level cache, the test of which tiles the mask leaves visible, GEMMs between a
// tile and rows of a head, and staging of 16-bit heads as f32 rows in the workspace.
#pragma once

#include <algorithm>
#include <cstring>

#include "common/base/math.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/loops/attention_loops.h"
#include "kernels/cpu/loops/vector_loops.h"
#include "kernels/cpu/staging.h"
#include "kernels/ops/attention.h"

namespace mt::kernels::cpu {

inline constexpr int64_t kTile = 128;  // query positions and key positions per tile

inline int64_t TileSize(const AttentionShape& shape) {
  return std::min(kTile, base::RoundUp(shape.s, 16));
}

// Returns the tile of queries [q, q + tile) and keys [k, k + tile), cut at the end of the sequence.
inline TilePlace Place(const AttentionShape& shape, int64_t q, int64_t k) {
  const int64_t tile = TileSize(shape);
  return {.rows = std::min(tile, shape.s - q),
          .columns = std::min(tile, shape.s - k),
          .stride = tile,
          .first_query = q,
          .first_key = k,
          .lead = shape.q0 + q - (shape.k0 + k),
          .causal = shape.causal,
          .window = shape.window};
}

// Returns whether any query of the tile attends to any of its keys. The visible key blocks of a
// query block are contiguous, and so are the visible query blocks of a key block.
inline bool IsVisible(const TilePlace& p) {
  const bool not_after = !p.causal || p.lead + p.rows - 1 >= 0;
  const bool not_before = p.window == 0 || p.columns - 1 > p.lead - p.window;
  return not_after && not_before;
}

// Rows of d elements, `stride` apart.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;
  Rows From(int64_t row) const { return {data + row * stride, stride}; }
  operator Rows<const T>() const { return {data, stride}; }  // NOLINT(google-explicit-constructor)
};

// One head of one sample, all s positions, as rows of d elements.
template <class S>
Rows<S> HeadRows(const HeadView& view, int64_t b, int64_t head) {
  return {static_cast<S*>(view.data) + b * view.b_stride + head * view.head_stride, view.s_stride};
}

// Returns `count` rows of d elements in the compute type: the rows themselves, or for 16-bit rows a
// copy in `staging` [count, d].
template <class S, class T = Compute<S>>
Rows<const T> LoadRows(const Rows<S>& rows, int64_t count, int64_t d, T* staging) {
  if constexpr (IsHalf(DTypeOf<S>())) {
    ConvertBlock<T, S>({staging, d, count, d}, {rows.data, rows.stride, count, d});
    return {staging, d};
  } else {
    return rows;
  }
}

// Returns the memory in which rows destined for `rows` are computed: `rows` itself, or `staging`
// for 16-bit rows.
template <class S, class T = Compute<S>>
Rows<T> TargetRows(const Rows<S>& rows, int64_t d, T* staging) {
  if constexpr (IsHalf(DTypeOf<S>())) {
    return {staging, d};
  } else {
    return rows;
  }
}

// Rounds rows computed in `staging` into `rows`; does nothing if they were computed in place.
template <class S, class T = Compute<S>>
void StoreRows(const Rows<T>& computed, int64_t count, int64_t d, const Rows<S>& rows) {
  if constexpr (IsHalf(DTypeOf<S>())) {
    ConvertBlock<S, T>({rows.data, rows.stride, count, d},
                       {computed.data, computed.stride, count, d});
  }
}

template <class T>
void ZeroRows(const Rows<T>& rows, int64_t count, int64_t d) {
  for (int64_t row = 0; row < count; ++row) {
    std::fill_n(rows.From(row).data, d, T{0});
  }
}

// Hands out parts of one thread's scratch memory.
template <class T>
class Scratch {
 public:
  explicit Scratch(T* data) : next_(data) {}
  T* Take(int64_t count) {
    T* const out = next_;
    next_ += count;
    return out;
  }

 private:
  T* next_;
};

inline TileDropout HeadDropout(const AttentionDropout& d, int64_t b, int64_t head) {
  if (!d.rate.active()) return {};
  const Tensor& keys = d.key_positions ? d.key_positions : d.positions;
  return {.threshold = d.rate.threshold,
          .scale = d.rate.Scale(),
          .key = d.key,
          .sample = d.samples.Data<int64_t>()[b],
          .head = d.first_head + static_cast<int32_t>(head),
          .positions = d.positions.Data<int32_t>(),
          .key_positions = keys.Data<int32_t>()};
}

template <class T>
T SlopeOf(const AttentionShape& shape, int64_t head) {
  return shape.slopes ? shape.slopes.Data<T>()[head] : T{0};
}

inline void CheckAttention(const AttentionShape& shape, const AttentionDropout& dropout,
                           const Tensor& lse) {
  CHECK(shape.g > 0 && shape.a % shape.g == 0) << shape.a << " heads, " << shape.g << " groups";
  CHECK(shape.window >= 0 && (shape.window == 0 || shape.causal)) << "window " << shape.window;
  CHECK_EQ(lse.NumElements(), shape.b * shape.a * shape.s);
  if (shape.slopes) CHECK_EQ(shape.slopes.NumElements(), shape.a);
  if (dropout.rate.active()) {
    CHECK_EQ(dropout.samples.NumElements(), shape.b);
    CHECK_EQ(dropout.positions.NumElements(), shape.s);
    if (dropout.key_positions) CHECK_EQ(dropout.key_positions.NumElements(), shape.s);
  }
}

// GEMMs of a tile; `x` and `y` start at the tile's first query or key. logits = alpha x y^T: x
// [rows, d], y [columns, d].
template <class T>
void RowsByRows(const TilePlace& p, int64_t d, double alpha, const Rows<const T>& x,
                const Rows<const T>& y, T* tile) {
  Gemm<T>({.transpose_b = true,
           .m = p.rows,
           .n = p.columns,
           .k = d,
           .alpha = static_cast<T>(alpha),
           .a = x.data,
           .lda = x.stride,
           .b = y.data,
           .ldb = y.stride,
           .c = tile,
           .ldc = p.stride});
}

// The destination of a tile's GEMM: overwritten, or added to.
template <class T>
struct Target {
  Rows<T> rows;
  bool add = false;
};

// to [rows, d] = or += alpha tile y: y [columns, d].
template <class T>
void TileByRows(const TilePlace& p, int64_t d, double alpha, const T* tile, const Rows<const T>& y,
                const Target<T>& to) {
  Gemm<T>({.m = p.rows,
           .n = d,
           .k = p.columns,
           .alpha = static_cast<T>(alpha),
           .a = tile,
           .lda = p.stride,
           .b = y.data,
           .ldb = y.stride,
           .beta = to.add ? T{1} : T{0},
           .c = to.rows.data,
           .ldc = to.rows.stride});
}

// to [columns, d] = or += alpha tile^T x: x [rows, d].
template <class T>
void TileTransposedByRows(const TilePlace& p, int64_t d, double alpha, const T* tile,
                          const Rows<const T>& x, const Target<T>& to) {
  Gemm<T>({.transpose_a = true,
           .m = p.columns,
           .n = d,
           .k = p.rows,
           .alpha = static_cast<T>(alpha),
           .a = tile,
           .lda = p.stride,
           .b = x.data,
           .ldb = x.stride,
           .beta = to.add ? T{1} : T{0},
           .c = to.rows.data,
           .ldc = to.rows.stride});
}

}  // namespace mt::kernels::cpu
