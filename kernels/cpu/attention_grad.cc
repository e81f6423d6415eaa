// The gradient of FlashAttention (Dao et al. 2022, algorithm 4): probabilities are recomputed, tile
// by tile, from the kept log-sum-exp. One task is one key/value head of one sample, so one thread
// adds up each sum, in one order.
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_ops.h"

namespace mt::kernels::cpu {
namespace {

// Heads staged in f32 per thread for 16-bit tensors: q, k, v, dout, dq, dk, dv.
constexpr int64_t kStagedHeads = 7;

int64_t TileElements(const AttentionGradArgs& a) {
  const int64_t tile = TileSize(a.shape);
  return (a.dropout.rate.active() ? 3 : 2) * tile * tile;
}

int64_t HeadElements(const AttentionShape& shape) { return base::RoundUp(shape.s * shape.d, 64); }

int64_t ScratchElements(const AttentionGradArgs& a) {
  const int64_t staged = IsHalf(a.shape.dtype) ? kStagedHeads * HeadElements(a.shape) : 0;
  return base::RoundUp(TileElements(a), 64) + base::RoundUp(a.shape.s, 64) + staged;
}

// One query head with its key/value head, in the compute type.
template <class T>
struct HeadGrad {
  Rows<const T> q, k, v, dout;
  Rows<T> dq, dk, dv;
  const T* lse = nullptr;    // [s]
  const T* delta = nullptr;  // [s]
  TileDropout dropout;
  bool has_slope = false;
  T slope = 0;
};

// The gradients that already hold values when a tile is computed, and are therefore added to.
struct Written {
  bool dq = false;    // by earlier keys
  bool dkdv = false;  // by earlier queries, or heads of the group
};

// Adds one tile to the gradients (Dao et al. 2022, algorithm 4):
//   p = e^(q k^T scale - lse), dv += (p mask)^T dout, dlogits = p (dout v^T mask - delta),
//   dq += dlogits k scale, dk += dlogits^T q scale
template <class T>
void GradTile(const AttentionShape& shape, const TilePlace& place, const HeadGrad<T>& head,
              const Written& written, Scratch<T> scratch) {
  const int64_t elements = place.stride * place.stride, d = shape.d;
  const int64_t query = place.first_query, key = place.first_key;
  T* const p = scratch.Take(elements);
  T* const dp = scratch.Take(elements);
  T* const mask = head.dropout.threshold != 0 ? scratch.Take(elements) : nullptr;
  RowsByRows<T>(place, d, shape.scale, head.q.From(query), head.k.From(key), p);
  if (head.has_slope) BiasTile(place, head.slope, p);
  ProbabilityTile(place, head.lse + query, p);
  const T* dropped = p;
  if (mask != nullptr) {
    DropoutTile(place, head.dropout, mask);
    std::memcpy(dp, p, static_cast<size_t>(place.rows * place.stride) * sizeof(T));
    MultiplyTile(place, mask, dp);
    dropped = dp;
  }
  TileTransposedByRows<T>(place, d, 1.0, dropped, head.dout.From(query),
                          {head.dv.From(key), written.dkdv});
  RowsByRows<T>(place, d, 1.0, head.dout.From(query), head.v.From(key), dp);
  LogitGradTile(place, p, mask, head.delta + query, dp);
  TileTransposedByRows<T>(place, d, shape.scale, dp, head.q.From(query),
                          {head.dk.From(key), written.dkdv});
  TileByRows<T>(place, d, shape.scale, dp, head.k.From(key), {head.dq.From(query), written.dq});
}

// Computes all tiles of one head, by key blocks, then query blocks. first_of_group: dk and dv hold
// no values yet.
template <class T>
void GradHead(const AttentionShape& shape, const HeadGrad<T>& head, bool first_of_group, T* tiles) {
  const int64_t tile = TileSize(shape);
  for (int64_t q = 0; q < shape.s;
       q += tile) {  // query blocks without a visible key have zero gradients
    bool sees_any = false;
    for (int64_t k = 0; k < shape.s; k += tile) sees_any |= IsVisible(Place(shape, q, k));
    if (!sees_any) ZeroRows(head.dq.From(q), Place(shape, q, 0).rows, shape.d);
  }
  for (int64_t k = 0; k < shape.s; k += tile) {
    bool dkdv_written = !first_of_group;
    for (int64_t q = 0; q < shape.s; q += tile) {
      const TilePlace place = Place(shape, q, k);
      if (!IsVisible(place)) continue;
      const bool dq_written = k > 0 && IsVisible(Place(shape, q, k - tile));
      GradTile(shape, place, head, {dq_written, dkdv_written}, Scratch<T>(tiles));
      dkdv_written = true;
    }
    if (dkdv_written) continue;
    const int64_t columns = Place(shape, 0, k).columns;
    ZeroRows(head.dk.From(k), columns, shape.d);
    ZeroRows(head.dv.From(k), columns, shape.d);
  }
}

// f32 copies of 16-bit heads; null for other types.
template <class T>
struct StagedHeads {
  T *q = nullptr, *k = nullptr, *v = nullptr, *dout = nullptr;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

template <class S, class T = Compute<S>>
StagedHeads<T> TakeHeads(const AttentionShape& shape, Scratch<T>* scratch) {
  StagedHeads<T> out;
  if constexpr (IsHalf(DTypeOf<S>())) {
    for (T** head : {&out.q, &out.k, &out.v, &out.dout, &out.dq, &out.dk, &out.dv}) {
      *head = scratch->Take(HeadElements(shape));
    }
  }
  return out;
}

// Computes one key/value head of one sample: its query heads in order.
template <class S>
void GradGroup(const AttentionGradArgs& a, int64_t b, int64_t group, Compute<S>* data) {
  using T = Compute<S>;
  const AttentionShape& shape = a.shape;
  const int64_t per_group = shape.a / shape.g, s = shape.s, d = shape.d;
  Scratch<T> scratch(data);
  T* const delta = scratch.Take(base::RoundUp(s, 64));
  T* const tiles = scratch.Take(base::RoundUp(TileElements(a), 64));
  const StagedHeads<T> staged = TakeHeads<S>(shape, &scratch);
  const auto dk = HeadRows<S>(a.dk, b, group), dv = HeadRows<S>(a.dv, b, group);
  HeadGrad<T> head{.k = LoadRows(HeadRows<S>(a.k, b, group), s, d, staged.k),
                   .v = LoadRows(HeadRows<S>(a.v, b, group), s, d, staged.v),
                   .dk = TargetRows(dk, d, staged.dk),
                   .dv = TargetRows(dv, d, staged.dv),
                   .delta = delta,
                   .has_slope = static_cast<bool>(shape.slopes)};
  for (int64_t i = group * per_group; i < (group + 1) * per_group; ++i) {
    const auto dout = HeadRows<S>(a.do_, b, i), o = HeadRows<S>(a.o, b, i),
               dq = HeadRows<S>(a.dq, b, i);
    head.q = LoadRows(HeadRows<S>(a.q, b, i), s, d, staged.q);
    head.dout = LoadRows(dout, s, d, staged.dout);
    head.dq = TargetRows(dq, d, staged.dq);
    head.lse = a.lse.Data<T>() + (b * shape.a + i) * s;
    head.dropout = HeadDropout(a.dropout, b, i);
    head.slope = SlopeOf<T>(shape, i);
    RowDots<S>({dout.data, dout.stride}, {o.data, o.stride}, s, d, delta);
    GradHead(shape, head, i % per_group == 0, tiles);
    StoreRows(head.dq, s, d, dq);
  }
  StoreRows(head.dk, s, d, dk);
  StoreRows(head.dv, s, d, dv);
}

int64_t WorkspaceBytes(const ThreadPool& pool, const AttentionGradArgs& a) {
  return pool.num_threads() * ScratchElements(a) * SizeOf(AccumulatorOf(a.shape.dtype));
}

}  // namespace

int64_t CpuAttention::Plan(const AttentionGradArgs& a) { return WorkspaceBytes(*pool_, a); }

void CpuAttention::Grad(Stream& /*stream*/, const AttentionGradArgs& a) const {
  const AttentionShape& shape = a.shape;
  CheckAttention(shape, a.dropout, a.lse);
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(*pool_, a));
  ForFloatType(shape.dtype, "attention Grad", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    pool_->ForTasks(shape.b * shape.g, [&](int64_t task, int thread) {
      T* const scratch = static_cast<T*>(a.workspace.data) + thread * ScratchElements(a);
      GradGroup<S>(a, task / shape.g, task % shape.g, scratch);
    });
  });
}

}  // namespace mt::kernels::cpu
