// What attention does to one tile of logits between its matrix products. A tile is [rows, columns]
// with row stride `stride`: rows are query positions from first_query on, columns key positions
// from first_key on (indices in the sequence of this call). T is float or double.
#pragma once

#include <cstdint>

namespace mt::kernels::cpu {

struct TilePlace {
  int64_t rows = 0, columns = 0, stride = 0;
  int64_t first_query = 0, first_key = 0;
  bool causal = true;
};

// Attention dropout of one head of one sample; threshold 0 = none.
struct TileDropout {
  uint32_t threshold = 0;
  double scale = 1;
  uint64_t key = 0;
  int64_t sample = 0;
  int32_t head = 0;                    // global number
  const int32_t* positions = nullptr;  // absolute, by index in the sequence
};

// mask[row, column] = 0 where dropped, else scale; same strides as the tile.
template <class T>
void DropoutTile(const TilePlace& place, const TileDropout& dropout, T* mask);

// One step of the online softmax (Dao et al. 2022, algorithm 1): tile = e^(tile - m) with the row's
// new running maximum m, 0 beyond the causal diagonal; sum = sum e^(old m - m) + the row's sum; the
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

// Ends the rows: out /= sum, lse = max + log(sum).
template <class T>
void FinishRows(const TilePlace& place, const SoftmaxState<T>& state, T* lse);

// tile = e^(tile - lse[row]), 0 beyond the causal diagonal: the probabilities again.
template <class T>
void ProbabilityTile(const TilePlace& place, const T* lse, T* tile);

// x *= mask, over a tile.
template <class T>
void MultiplyTile(const TilePlace& place, const T* mask, T* x);

// Rows of d elements, `stride` apart.
template <class T>
struct StridedRows {
  const T* data = nullptr;
  int64_t stride = 0;
};

// delta[row] = sum over d of dout * out (Dao et al. 2022, appendix B.2).
template <class T>
void RowDots(const StridedRows<T>& dout, const StridedRows<T>& out, int64_t rows, int64_t d,
             T* delta);

// dp = p * (dp * mask - delta[row]): the gradient of the logits; mask null without dropout.
template <class T>
void LogitGradTile(const TilePlace& place, const T* p, const T* mask, const T* delta, T* dp);

}  // namespace mt::kernels::cpu
