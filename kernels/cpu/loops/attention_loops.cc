// The masks, the online softmax and the logit gradients of attention, row by row. Masked elements
// are never exponentiated: each row computes only its visible columns and sets the others to zero.
#include "kernels/cpu/loops/attention_loops.h"

#include "kernels/cpu/loops/dropout.h"
#include "kernels/cpu/loops/reduce.h"

namespace mt::kernels::cpu {
namespace {

// Columns [begin, end) of a row that its query attends to.
struct Visible {
  int64_t begin = 0, end = 0;
};

MT_ALWAYS_INLINE Visible VisibleColumns(const TilePlace& p, int64_t row) {
  const int64_t diagonal = p.lead + row;
  Visible out{0, p.columns};
  if (p.causal && diagonal + 1 < out.end) out.end = diagonal < 0 ? 0 : diagonal + 1;
  if (p.window != 0 && diagonal - p.window >= 0) out.begin = diagonal - p.window + 1;
  if (out.begin > out.end) out.begin = out.end;
  return out;
}

// Returns whether the tile's key positions are consecutive from a multiple of 8 on, as they are
// without context parallelism: then one batch of Philox calls serves kDropoutChunk keys.
MT_ALWAYS_INLINE bool InOrder(const TilePlace& p, const int32_t* positions) {
  const int32_t* at = positions + p.first_key;
  if (at[0] % 8 != 0) return false;
  for (int64_t c = 1; c < p.columns; ++c) {
    if (at[c] != at[c - 1] + 1) return false;
  }
  return true;
}

template <class T>
MT_ALWAYS_INLINE void DropoutRowInOrder(const TileDropout& d, int32_t first_position, int32_t query,
                                        int64_t count, T* mask) {
  T chunk[kDropoutChunk];
  for (int64_t c = 0; c < count; c += kDropoutChunk) {
    DropoutChunk(d.key, AttentionDropoutCounter(first_position + c, query, d.sample, d.head),
                 d.threshold, static_cast<T>(d.scale), chunk);
    const int64_t n = count - c < kDropoutChunk ? count - c : kDropoutChunk;
    for (int64_t i = 0; i < n; ++i) mask[c + i] = chunk[i];
  }
}

template <class T>
MT_ALWAYS_INLINE void DropoutRowByKey(const TileDropout& d, const int32_t* key_positions,
                                      int32_t query, int64_t count, T* mask) {
  for (int64_t c = 0; c < count; ++c) {
    const int32_t key_position = key_positions[c];
    const Philox4 bits =
        Philox(d.key, AttentionDropoutCounter(key_position, query, d.sample, d.head));
    mask[c] = Bits16(bits, key_position % 8) >= d.threshold ? static_cast<T>(d.scale) : T{0};
  }
}

template <class T>
MT_ALWAYS_INLINE void ExpRow(T* __restrict__ x, T shift, const Visible& visible, int64_t columns) {
  for (int64_t c = 0; c < visible.begin; ++c) x[c] = 0;
  for (int64_t c = visible.begin; c < visible.end; ++c) x[c] = Exp(x[c] - shift);
  for (int64_t c = visible.end; c < columns; ++c) x[c] = 0;
}

}  // namespace

template <class T>
void DropoutTile(const TilePlace& p, const TileDropout& d, T* mask) {
  const int32_t* keys = d.key_positions + p.first_key;
  const bool in_order = InOrder(p, d.key_positions);
  for (int64_t row = 0; row < p.rows; ++row) {
    const int32_t query = d.positions[p.first_query + row];
    const Visible visible = VisibleColumns(p, row);
    T* out = mask + row * p.stride;
    if (in_order) {
      DropoutRowInOrder(d, keys[0], query, visible.end, out);
    } else {
      DropoutRowByKey(d, keys, query, visible.end, out);
    }
    for (int64_t c = 0; c < visible.begin; ++c) out[c] = 0;
    for (int64_t c = visible.end; c < p.columns; ++c) out[c] = 0;
  }
}

template <class T>
void BiasTile(const TilePlace& p, T slope, T* tile) {
  for (int64_t row = 0; row < p.rows; ++row) {
    T* __restrict__ x = tile + row * p.stride;
    const int64_t diagonal = p.lead + row;
    for (int64_t c = 0; c < p.columns; ++c) {
      x[c] += slope * static_cast<T>(static_cast<int32_t>(c - diagonal));
    }
  }
}

template <class T>
void SoftmaxTile(const TilePlace& p, const SoftmaxState<T>& state, T* tile) {
  for (int64_t row = 0; row < p.rows; ++row) {
    T* __restrict__ x = tile + row * p.stride;
    const Visible visible = VisibleColumns(p, row);
    const int64_t count = visible.end - visible.begin;
    const T tile_max = Max(x + visible.begin, count);
    const T old_max = state.first ? tile_max : state.max[row];
    const T new_max = tile_max > old_max ? tile_max : old_max;
    ExpRow(x, new_max, visible, p.columns);
    const T tile_sum = Sum(x + visible.begin, count);
    state.max[row] = new_max;
    if (state.first) {
      state.sum[row] = tile_sum;
    } else if (count > 0) {
      const T shrink = Exp(old_max - new_max);
      state.sum[row] = state.sum[row] * shrink + tile_sum;
      T* __restrict__ out = state.out + row * state.out_stride;
      for (int64_t c = 0; c < state.d; ++c) out[c] *= shrink;
    }
  }
}

template <class T>
void FinishRows(const TilePlace& p, const SoftmaxState<T>& state, T* lse) {
  for (int64_t row = 0; row < p.rows; ++row) {
    T* __restrict__ out = state.out + row * state.out_stride;
    const bool saw_none = state.sum[row] == T{0};
    const T inverse = T{1} / state.sum[row];
    for (int64_t c = 0; c < state.d; ++c) out[c] = saw_none ? T{0} : out[c] * inverse;
    lse[row] = saw_none ? -static_cast<T>(__builtin_inf()) : state.max[row] + Log(state.sum[row]);
  }
}

template <class T>
void ProbabilityTile(const TilePlace& p, const T* lse, T* tile) {
  for (int64_t row = 0; row < p.rows; ++row) {
    ExpRow(tile + row * p.stride, lse[row], VisibleColumns(p, row), p.columns);
  }
}

template <class T>
void MultiplyTile(const TilePlace& p, const T* mask, T* x) {
  for (int64_t row = 0; row < p.rows; ++row) {
    const T* __restrict__ m = mask + row * p.stride;
    T* __restrict__ to = x + row * p.stride;
    for (int64_t c = 0; c < p.columns; ++c) to[c] *= m[c];
  }
}

template <class S>
void RowDots(const StridedRows<S>& dout, const StridedRows<S>& out, int64_t rows, int64_t d,
             Compute<S>* delta) {
  for (int64_t row = 0; row < rows; ++row) {
    delta[row] = Dot(dout.data + row * dout.stride, out.data + row * out.stride, d);
  }
}

template <class T>
void LogitGradTile(const TilePlace& place, const T* p, const T* mask, const T* delta, T* dp) {
  for (int64_t row = 0; row < place.rows; ++row) {
    const T* __restrict__ probability = p + row * place.stride;
    T* __restrict__ to = dp + row * place.stride;
    const T shift = delta[row];
    if (mask != nullptr) {
      const T* __restrict__ m = mask + row * place.stride;
      for (int64_t c = 0; c < place.columns; ++c) {
        to[c] = probability[c] * (to[c] * m[c] - shift);
      }
    } else {
      for (int64_t c = 0; c < place.columns; ++c) to[c] = probability[c] * (to[c] - shift);
    }
  }
}

template void DropoutTile<float>(const TilePlace&, const TileDropout&, float*);
template void BiasTile<float>(const TilePlace&, float, float*);
template void SoftmaxTile<float>(const TilePlace&, const SoftmaxState<float>&, float*);
template void FinishRows<float>(const TilePlace&, const SoftmaxState<float>&, float*);
template void ProbabilityTile<float>(const TilePlace&, const float*, float*);
template void MultiplyTile<float>(const TilePlace&, const float*, float*);
template void LogitGradTile<float>(const TilePlace&, const float*, const float*, const float*,
                                   float*);
template void DropoutTile<double>(const TilePlace&, const TileDropout&, double*);
template void BiasTile<double>(const TilePlace&, double, double*);
template void SoftmaxTile<double>(const TilePlace&, const SoftmaxState<double>&, double*);
template void FinishRows<double>(const TilePlace&, const SoftmaxState<double>&, double*);
template void ProbabilityTile<double>(const TilePlace&, const double*, double*);
template void MultiplyTile<double>(const TilePlace&, const double*, double*);
template void LogitGradTile<double>(const TilePlace&, const double*, const double*, const double*,
                                    double*);
template void RowDots<float>(const StridedRows<float>&, const StridedRows<float>&, int64_t, int64_t,
                             float*);
template void RowDots<double>(const StridedRows<double>&, const StridedRows<double>&, int64_t,
                              int64_t, double*);
template void RowDots<Bf16>(const StridedRows<Bf16>&, const StridedRows<Bf16>&, int64_t, int64_t,
                            float*);
template void RowDots<F16>(const StridedRows<F16>&, const StridedRows<F16>&, int64_t, int64_t,
                           float*);

}  // namespace mt::kernels::cpu
