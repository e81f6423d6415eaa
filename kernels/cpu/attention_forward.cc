// Flash attention (Dao et al. 2022) by tiles of logits, with OpenBLAS for the tiles' products.
// Every output element is summed by one thread in a fixed order, so the bits do not depend on the
// number of threads.
#include <limits>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_ops.h"

namespace mt::kernels::cpu {
namespace {

// Scratch elements per thread: tiles, running maxima and sums; for 16-bit tensors also f32 copies
// of a tile's rows of q, k, v and o.
int64_t ScratchElements(const AttentionForwardArgs& a) {
  const int64_t tile = TileSize(a.shape);
  const int64_t tiles = a.dropout.rate.active() ? 2 : 1;
  const int64_t staged = IsHalf(a.shape.dtype) ? 4 * tile * a.shape.d : 0;
  return base::RoundUp(tiles * tile * tile + 2 * tile + staged, 64);
}

// The rows of one head that a tile's GEMMs read and write, and the staging buffers of 16-bit heads.
template <class S>
struct ForwardHead {
  Rows<S> q, k, v, o;
  Compute<S>*staged_q = nullptr, *staged_k = nullptr, *staged_v = nullptr, *staged_o = nullptr;
};

template <class S>
ForwardHead<S> HeadOf(const AttentionForwardArgs& a, int64_t b, int64_t head,
                      Scratch<Compute<S>>* scratch) {
  const int64_t kv_head = head / (a.shape.a / a.shape.g);
  ForwardHead<S> out{.q = HeadRows<S>(a.q, b, head),
                     .k = HeadRows<S>(a.k, b, kv_head),
                     .v = HeadRows<S>(a.v, b, kv_head),
                     .o = HeadRows<S>(a.o, b, head)};
  if constexpr (IsHalf(DTypeOf<S>())) {
    const int64_t rows = TileSize(a.shape) * a.shape.d;
    out.staged_q = scratch->Take(rows);
    out.staged_k = scratch->Take(rows);
    out.staged_v = scratch->Take(rows);
    out.staged_o = scratch->Take(rows);
  }
  return out;
}

// Computes one block of queries of one head: all of its visible tiles, in ascending key order.
template <class S>
void ForwardBlock(const AttentionForwardArgs& a, int64_t b, int64_t head, int64_t q,
                  Scratch<Compute<S>> scratch) {
  using T = Compute<S>;
  const AttentionShape& shape = a.shape;
  const int64_t tile_size = TileSize(shape), d = shape.d;
  const TileDropout dropout = HeadDropout(a.dropout, b, head);
  T* const tile = scratch.Take(tile_size * tile_size);
  T* const mask = dropout.threshold != 0 ? scratch.Take(tile_size * tile_size) : nullptr;
  T* const max = scratch.Take(tile_size);
  T* const sum = scratch.Take(tile_size);
  const ForwardHead<S> rows = HeadOf<S>(a, b, head, &scratch);
  TilePlace place = Place(shape, q, 0);
  const Rows<const T> q_rows = LoadRows(rows.q.From(q), place.rows, d, rows.staged_q);
  const Rows<T> o_rows = TargetRows(rows.o.From(q), d, rows.staged_o);
  SoftmaxState<T> state{.max = max,
                        .sum = sum,
                        .out = o_rows.data,
                        .out_stride = o_rows.stride,
                        .d = d,
                        .first = true};
  for (int64_t k = 0; k < shape.s; k += tile_size) {
    place = Place(shape, q, k);
    if (!IsVisible(place)) continue;
    const auto k_rows = LoadRows(rows.k.From(k), place.columns, d, rows.staged_k);
    const auto v_rows = LoadRows(rows.v.From(k), place.columns, d, rows.staged_v);
    RowsByRows<T>(place, d, shape.scale, q_rows, k_rows, tile);
    if (shape.slopes) BiasTile(place, SlopeOf<T>(shape, head), tile);
    SoftmaxTile(place, state, tile);
    if (mask != nullptr) {
      DropoutTile(place, dropout, mask);
      MultiplyTile(place, mask, tile);
    }
    TileByRows<T>(place, d, 1.0, tile, v_rows, {o_rows, !state.first});
    state.first = false;
  }
  if (state.first) std::fill_n(sum, place.rows, T{0});  // no query of the block attends to any key
  FinishRows(place, state, a.lse.Data<T>() + (b * shape.a + head) * shape.s + q);
  StoreRows(o_rows, place.rows, d, rows.o.From(q));
}

int64_t WorkspaceBytes(const ThreadPool& pool, const AttentionForwardArgs& a) {
  return pool.num_threads() * ScratchElements(a) * SizeOf(AccumulatorOf(a.shape.dtype));
}

}  // namespace

int64_t CpuAttention::Plan(const AttentionForwardArgs& a) { return WorkspaceBytes(*pool_, a); }

void CpuAttention::Forward(Stream& /*stream*/, const AttentionForwardArgs& a) const {
  const AttentionShape& shape = a.shape;
  CheckAttention(shape, a.dropout, a.lse);
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(*pool_, a));
  const int64_t tile = TileSize(shape), heads = shape.b * shape.a;
  const int64_t blocks = base::CeilDiv(shape.s, tile);
  ForFloatType(shape.dtype, "attention Forward", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    // Under a causal mask later query blocks have more visible keys; assigning tasks to threads
    // block by block balances them.
    pool_->ForTasks(blocks * heads, [&](int64_t task, int thread) {
      const int64_t head = task % heads;
      T* const scratch = static_cast<T*>(a.workspace.data) + thread * ScratchElements(a);
      ForwardBlock<S>(a, head / shape.a, head % shape.a, task / heads * tile, Scratch<T>(scratch));
    });
  });
}

}  // namespace mt::kernels::cpu
