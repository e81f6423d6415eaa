// The elementwise work of attention on one tile of logits between its GEMMs. A tile is [rows,
// columns] with row stride `stride`: rows are query positions from first_query on, columns are key
// positions from first_key on (indices in the sequence of this call). T is float or double.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {

struct TilePlace {
  int64_t rows = 0, columns = 0, stride = 0;
  int64_t first_query = 0, first_key = 0;
  // Number of positions by which the first query lies behind the first key in their sequence: row r
  // sees columns up to lead + r (causal) and above lead + r - window (if window is not 0).
  int64_t lead = 0;
  bool causal = true;
  int64_t window = 0;
};

// Attention dropout of one head of one sample; threshold 0: none.
struct TileDropout {
  uint32_t threshold = 0;
  double scale = 1;
  uint64_t key = 0;
  int64_t sample = 0;
  int32_t head = 0;                        // global head number
  const int32_t* positions = nullptr;      // absolute, of the queries
  const int32_t* key_positions = nullptr;  // absolute, of the keys
};

// mask[row, column] = 0 where dropped, else scale; same strides as the tile.
template <class T>
void DropoutTile(const TilePlace& place, const TileDropout& dropout, T* mask);

// tile += slope * (key - query).
template <class T>
void BiasTile(const TilePlace& place, T slope, T* tile);

// One step of the online softmax (Dao et al. 2022, algorithm 1): tile = e^(tile - m) with the row's
// new running maximum m, 0 where masked; sum = sum e^(old m - m) + the row's sum; the
// row of `out` [rows, d] (row stride out_stride) is multiplied with e^(old m - m). `max` and `sum`
// are [rows]. first: no earlier tile, so out is not touched.
template <class T>
struct SoftmaxState {
  T* max = nullptr;
  T* sum = nullptr;
  T* out = nullptr;
  int64_t out_stride = 0, d = 0;
  bool first = false;
};
template <class T>
void SoftmaxTile(const TilePlace& place, const SoftmaxState<T>& state, T* tile);

// Finishes the rows: out /= sum, lse = max + log(sum). Rows without a visible key get out = 0 and
// lse = -infinity.
template <class T>
void FinishRows(const TilePlace& place, const SoftmaxState<T>& state, T* lse);

// tile = e^(tile - lse[row]), 0 where masked: recomputes the probabilities.
template <class T>
void ProbabilityTile(const TilePlace& place, const T* lse, T* tile);

// x *= mask, over a tile.
template <class T>
void MultiplyTile(const TilePlace& place, const T* mask, T* x);

// Rows of d elements, `stride` apart.
template <class S>
struct StridedRows {
  const S* data = nullptr;
  int64_t stride = 0;
};

// delta[row] = sum over d of dout * out (Dao et al. 2022, appendix B.2). S is any float type.
template <class S>
void RowDots(const StridedRows<S>& dout, const StridedRows<S>& out, int64_t rows, int64_t d,
             Compute<S>* delta);

// dp = p * (dp * mask - delta[row]), the gradient of the logits; mask is null without dropout.
template <class T>
void LogitGradTile(const TilePlace& place, const T* p, const T* mask, const T* delta, T* dp);

}  // namespace mt::kernels::cpu
