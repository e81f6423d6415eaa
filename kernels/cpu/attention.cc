// Flash attention (Dao et al. 2022) by tiles of logits that stay in the second-level cache, with
// OpenBLAS for the tiles' products. Every output element is summed by one thread in a fixed order,
// so the bits do not depend on the number of threads.
#include <algorithm>
#include <cstring>

#include "common/base/math.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/loops/attention_loops.h"

namespace mt::kernels::cpu {
namespace {

constexpr int64_t kTile = 128;  // query positions and key positions of a tile

// One head of one sample: rows of d elements, `stride` apart.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;
  T* At(int64_t s) const { return data + s * stride; }
};

template <class T>
Rows<T> HeadRows(const HeadView& view, int64_t b, int64_t head) {
  return {static_cast<T*>(view.data) + b * view.b_stride + head * view.head_stride, view.s_stride};
}

// A thread's scratch: tiles of [tile, tile] and vectors of [tile], one after another.
template <class T>
class Scratch {
 public:
  Scratch(const Workspace& workspace, int thread, int64_t tile, int64_t per_thread)
      : next_(static_cast<T*>(workspace.data) + thread * per_thread), tile_(tile) {}
  T* Tile() { return Take(tile_ * tile_); }
  T* Vector() { return Take(tile_); }

 private:
  T* Take(int64_t count) {
    T* const out = next_;
    next_ += count;
    return out;
  }
  T* next_;
  const int64_t tile_;
};

int64_t TileSize(const AttentionShape& shape) {
  return std::min(kTile, base::RoundUp(shape.s, 16));
}

// Elements of scratch per thread.
int64_t ScratchElements(const AttentionShape& shape, int64_t tiles, int64_t vectors) {
  const int64_t tile = TileSize(shape);
  return base::RoundUp(tiles * tile * tile + vectors * tile, 64);
}

int64_t ForwardScratch(const AttentionForwardArgs& a) {
  return ScratchElements(a.shape, a.dropout.rate.active() ? 2 : 1, 2);
}

int64_t GradScratch(const AttentionGradArgs& a) {
  return ScratchElements(a.shape, a.dropout.rate.active() ? 3 : 2, 0) +
         base::RoundUp(a.shape.s, 64);
}

TileDropout HeadDropout(const AttentionDropout& d, int64_t b, int64_t head) {
  if (!d.rate.active()) return {};
  return {.threshold = d.rate.threshold,
          .scale = d.rate.Scale(),
          .key = d.key,
          .sample = d.samples.Data<int64_t>()[b],
          .head = d.first_head + static_cast<int32_t>(head),
          .positions = d.positions.Data<int32_t>()};
}

void CheckArgs(const AttentionShape& shape, const AttentionDropout& dropout, const Tensor& lse) {
  CHECK(shape.g > 0 && shape.a % shape.g == 0) << shape.a << " heads, " << shape.g << " groups";
  CHECK_EQ(lse.NumElements(), shape.b * shape.a * shape.s);
  if (dropout.rate.active()) {
    CHECK_EQ(dropout.samples.NumElements(), shape.b);
    CHECK_EQ(dropout.positions.NumElements(), shape.s);
  }
}

// The tile of queries [q, q + rows) and keys [k, k + columns).
TilePlace Place(const AttentionShape& shape, int64_t q, int64_t k) {
  const int64_t tile = TileSize(shape);
  return {.rows = std::min(tile, shape.s - q),
          .columns = std::min(tile, shape.s - k),
          .stride = tile,
          .first_query = q,
          .first_key = k,
          .causal = shape.causal};
}

// logits = alpha x y^T: x [rows, d], y [columns, d].
template <class T>
void RowsByRows(const TilePlace& p, int64_t d, double alpha, const Rows<T>& x, const Rows<T>& y,
                T* tile) {
  Gemm<T>({.transpose_b = true,
           .m = p.rows,
           .n = p.columns,
           .k = d,
           .alpha = static_cast<T>(alpha),
           .a = x.At(p.first_query),
           .lda = x.stride,
           .b = y.At(p.first_key),
           .ldb = y.stride,
           .c = tile,
           .ldc = p.stride});
}

// Where a product of a tile goes, and how.
template <class T>
struct Target {
  Rows<T> rows;
  bool add = false;
};

// to [rows, d] = or += alpha tile y: y [columns, d].
template <class T>
void TileByRows(const TilePlace& p, int64_t d, double alpha, const T* tile, const Rows<T>& y,
                const Target<T>& to) {
  Gemm<T>({.m = p.rows,
           .n = d,
           .k = p.columns,
           .alpha = static_cast<T>(alpha),
           .a = tile,
           .lda = p.stride,
           .b = y.At(p.first_key),
           .ldb = y.stride,
           .beta = to.add ? T{1} : T{0},
           .c = to.rows.At(p.first_query),
           .ldc = to.rows.stride});
}

// to [columns, d] = or += alpha tile^T x: x [rows, d].
template <class T>
void TileTransposedByRows(const TilePlace& p, int64_t d, double alpha, const T* tile,
                          const Rows<T>& x, const Target<T>& to) {
  Gemm<T>({.transpose_a = true,
           .m = p.columns,
           .n = d,
           .k = p.rows,
           .alpha = static_cast<T>(alpha),
           .a = tile,
           .lda = p.stride,
           .b = x.At(p.first_query),
           .ldb = x.stride,
           .beta = to.add ? T{1} : T{0},
           .c = to.rows.At(p.first_key),
           .ldc = to.rows.stride});
}

// One block of queries of one head: all its tiles, left to right.
template <class T>
void ForwardBlock(const AttentionForwardArgs& a, int64_t b, int64_t head, int64_t q,
                  Scratch<T> scratch) {
  const AttentionShape& shape = a.shape;
  const int64_t kv_head = head / (shape.a / shape.g);
  const auto q_rows = HeadRows<T>(a.q, b, head), k_rows = HeadRows<T>(a.k, b, kv_head),
             v_rows = HeadRows<T>(a.v, b, kv_head), o_rows = HeadRows<T>(a.o, b, head);
  const TileDropout dropout = HeadDropout(a.dropout, b, head);
  T* const tile = scratch.Tile();
  T* const mask = dropout.threshold != 0 ? scratch.Tile() : nullptr;
  SoftmaxState<T> state{.max = scratch.Vector(),
                        .sum = scratch.Vector(),
                        .out = o_rows.At(q),
                        .out_stride = o_rows.stride,
                        .d = shape.d};
  TilePlace place = Place(shape, q, 0);
  const int64_t end = shape.causal ? q + place.rows : shape.s;
  for (int64_t k = 0; k < end; k += place.stride) {
    place = Place(shape, q, k);
    state.first = k == 0;
    RowsByRows(place, shape.d, shape.scale, q_rows, k_rows, tile);
    SoftmaxTile(place, state, tile);
    if (mask != nullptr) {
      DropoutTile(place, dropout, mask);
      MultiplyTile(place, mask, tile);
    }
    TileByRows(place, shape.d, 1.0, tile, v_rows, {o_rows, k > 0});
  }
  FinishRows(place, state, a.lse.Data<T>() + (b * shape.a + head) * shape.s + q);
}

template <class T>
struct HeadGrad {
  Rows<T> q, k, v, o, dout, dq, dk, dv;
  const T* lse = nullptr;  // [s]
  TileDropout dropout;
  bool first_of_group = false;  // writes dk and dv, others add
};

template <class T>
HeadGrad<T> HeadOf(const AttentionGradArgs& a, int64_t b, int64_t head) {
  const AttentionShape& shape = a.shape;
  const int64_t per_group = shape.a / shape.g;
  return {.q = HeadRows<T>(a.q, b, head),
          .k = HeadRows<T>(a.k, b, head / per_group),
          .v = HeadRows<T>(a.v, b, head / per_group),
          .o = HeadRows<T>(a.o, b, head),
          .dout = HeadRows<T>(a.do_, b, head),
          .dq = HeadRows<T>(a.dq, b, head),
          .dk = HeadRows<T>(a.dk, b, head / per_group),
          .dv = HeadRows<T>(a.dv, b, head / per_group),
          .lse = a.lse.Data<T>() + (b * shape.a + head) * shape.s,
          .dropout = HeadDropout(a.dropout, b, head),
          .first_of_group = head % per_group == 0};
}

// One tile: p = e^(q k^T scale - lse), dv += (p mask)^T dout, dlogits = p (dout v^T mask - delta),
// dq += dlogits k scale, dk += dlogits^T q scale (Dao et al. 2022, algorithm 4).
template <class T>
void GradTile(const AttentionShape& shape, const TilePlace& place, const HeadGrad<T>& head,
              const T* delta, Scratch<T> scratch) {
  T* const p = scratch.Tile();
  T* const dp = scratch.Tile();
  T* const mask = head.dropout.threshold != 0 ? scratch.Tile() : nullptr;
  const bool first_query_block =
      place.first_query == (shape.causal ? place.first_key : 0) && head.first_of_group;
  RowsByRows(place, shape.d, shape.scale, head.q, head.k, p);
  ProbabilityTile(place, head.lse + place.first_query, p);
  const T* dropped = p;
  if (mask != nullptr) {
    DropoutTile(place, head.dropout, mask);
    std::memcpy(dp, p, static_cast<size_t>(place.rows * place.stride) * sizeof(T));
    MultiplyTile(place, mask, dp);
    dropped = dp;
  }
  TileTransposedByRows(place, shape.d, 1.0, dropped, head.dout, {head.dv, !first_query_block});
  RowsByRows(place, shape.d, 1.0, head.dout, head.v, dp);
  LogitGradTile(place, p, mask, delta + place.first_query, dp);
  TileTransposedByRows(place, shape.d, shape.scale, dp, head.q, {head.dk, !first_query_block});
  TileByRows(place, shape.d, shape.scale, dp, head.k, {head.dq, place.first_key > 0});
}

// One key/value head of one sample: its query heads in order, each by key blocks, then query
// blocks.
template <class T>
void GradGroup(const AttentionGradArgs& a, int64_t b, int64_t group, T* scratch_data) {
  const AttentionShape& shape = a.shape;
  const int64_t per_group = shape.a / shape.g, tile = TileSize(shape);
  T* const delta = scratch_data;
  const Workspace tiles{.data = scratch_data + base::RoundUp(shape.s, 64)};
  for (int64_t head_idx = group * per_group; head_idx < (group + 1) * per_group; ++head_idx) {
    const HeadGrad<T> head = HeadOf<T>(a, b, head_idx);
    RowDots<T>({head.dout.data, head.dout.stride}, {head.o.data, head.o.stride}, shape.s, shape.d,
               delta);
    for (int64_t k = 0; k < shape.s; k += tile) {
      for (int64_t q = shape.causal ? k : 0; q < shape.s; q += tile) {
        GradTile(shape, Place(shape, q, k), head, delta, Scratch<T>(tiles, 0, tile, 0));
      }
    }
  }
}

}  // namespace

int64_t CpuAttention::WorkspaceBytes(const AttentionForwardArgs& a) const {
  return pool_->num_threads() * ForwardScratch(a) * SizeOf(a.shape.dtype);
}

void CpuAttention::Forward(Stream& /*stream*/, const AttentionForwardArgs& a) const {
  const AttentionShape& shape = a.shape;
  CheckArgs(shape, a.dropout, a.lse);
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  const int64_t tile = TileSize(shape), heads = shape.b * shape.a;
  const int64_t blocks = base::CeilDiv(shape.s, tile);
  ForFloatType(shape.dtype, "attention Forward", [&](auto zero) {
    using T = decltype(zero);
    // Later query blocks see more keys; dealing tasks out block by block keeps threads even.
    pool_->ForTasks(blocks * heads, [&](int64_t task, int thread) {
      const int64_t head = task % heads;
      ForwardBlock<T>(a, head / shape.a, head % shape.a, task / heads * tile,
                      Scratch<T>(a.workspace, thread, tile, ForwardScratch(a)));
    });
  });
}

int64_t CpuAttention::WorkspaceBytes(const AttentionGradArgs& a) const {
  return pool_->num_threads() * GradScratch(a) * SizeOf(a.shape.dtype);
}

void CpuAttention::Grad(Stream& /*stream*/, const AttentionGradArgs& a) const {
  const AttentionShape& shape = a.shape;
  CheckArgs(shape, a.dropout, a.lse);
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  ForFloatType(shape.dtype, "attention Grad", [&](auto zero) {
    using T = decltype(zero);
    pool_->ForTasks(shape.b * shape.g, [&](int64_t task, int thread) {
      T* const scratch = static_cast<T*>(a.workspace.data) + thread * GradScratch(a);
      GradGroup<T>(a, task / shape.g, task % shape.g, scratch);
    });
  });
}

}  // namespace mt::kernels::cpu
