// A row of h elements stays in the first-level cache between its passes: branch, residual, mean,
// variance (the two-pass algorithm, Chan et al. 1983 §1), result. With 16-bit storage everything
// between load and store is f32; the norm reads the residual as it was rounded, because backward
// has only that and must compute with the same numbers.
#include "kernels/cpu/loops/add_norm_loops.h"

#include "kernels/cpu/loops/reduce.h"

namespace mt::kernels::cpu {
namespace {

// Writes the multipliers of the kDropoutChunk channels from c on, of row `row`.
template <class T>
MT_ALWAYS_INLINE void RowDropout(const HiddenDropout& d, int64_t row, int64_t batch, int64_t c,
                                 T* multiplier) {
  DropoutChunk(d.key, HiddenDropoutCounter(c, d.positions[row / batch], d.samples[row % batch]),
               d.threshold, static_cast<T>(d.scale), multiplier);
}

template <class T, class S>
MT_ALWAYS_INLINE void AddRow(T* __restrict__ to, const S* __restrict__ from, int64_t h) {
  for (int64_t c = 0; c < h; ++c) to[c] += Widen(from[c]);
}

template <class T, class S>
MT_ALWAYS_INLINE void StoreRow(const T* __restrict__ from, int64_t h, S* __restrict__ to) {
  for (int64_t c = 0; c < h; ++c) Narrow(from[c], &to[c]);
}

// row = row as S would store it.
template <class S, class T>
MT_ALWAYS_INLINE void RoundRow(int64_t h, T* __restrict__ row) {
  for (int64_t c = 0; c < h; ++c) {
    S stored;
    Narrow(row[c], &stored);
    row[c] = Widen(stored);
  }
}

// out = residual + dropout(sum of partials + bias + position row), a chunk of channels at a time,
// so that `out` may be the residual or a partial.
template <class S>
MT_ALWAYS_INLINE void CloseBranch(const AddNormRows<S>& a, int64_t row, S* out) {
  Compute<S> branch[kDropoutChunk], multiplier[kDropoutChunk];
  for (int64_t c = 0; c < a.h; c += kDropoutChunk) {
    const int64_t count = a.h - c < kDropoutChunk ? a.h - c : kDropoutChunk;
    const int64_t at = row * a.h + c;
    for (int64_t i = 0; i < count; ++i) branch[i] = 0;
    for (int p = 0; p < a.num_partials; ++p) AddRow(branch, a.partials[p] + at, count);
    if (a.rounded) RoundRow<S>(count, branch);
    if (a.bias != nullptr) AddRow(branch, a.bias + c, count);
    if (a.position_table != nullptr) {
      AddRow(branch, a.position_table + a.positions[row / a.rows_per_position] * a.h + c, count);
    }
    if (a.dropout.threshold != 0) {
      RowDropout(a.dropout, row, a.batch, c, multiplier);
      for (int64_t i = 0; i < count; ++i) branch[i] *= multiplier[i];
    }
    if (a.residual != nullptr) AddRow(branch, a.residual + at, count);
    StoreRow(branch, count, out + c);
  }
}

template <class S>
MT_ALWAYS_INLINE void Normalise(const AddNormRows<S>& a, int64_t row, const S* x) {
  using T = Compute<S>;
  const int64_t h = a.h;
  const T mean = a.layer_norm ? Sum(x, h) / static_cast<T>(h) : T{0};
  const T variance = SquaredDeviation(x, mean, h) / static_cast<T>(h);
  const T rstd = T{1} / Sqrt(variance + a.eps);
  if (a.mean != nullptr) a.mean[row] = mean;
  a.rstd[row] = rstd;
  const T plus = a.one_plus ? T{1} : T{0};
  T xs[kHalfChunk], gains[kHalfChunk], shifts[kHalfChunk], ys[kHalfChunk];
  for (int64_t at = 0; at < h; at += kHalfChunk) {
    const int64_t count = h - at < kHalfChunk ? h - at : kHalfChunk;
    S* const out = a.y + row * h + at;
    const T* __restrict__ wide = WidenChunk(x + at, count, xs);
    const T* __restrict__ gain = WidenChunk(a.gain + at, count, gains);
    T* __restrict__ y = TargetChunk(out, ys);
    if (a.shift != nullptr) {
      const T* __restrict__ shift = WidenChunk(a.shift + at, count, shifts);
      for (int64_t c = 0; c < count; ++c) {
        y[c] = (wide[c] - mean) * rstd * (gain[c] + plus) + shift[c];
      }
    } else {
      for (int64_t c = 0; c < count; ++c) y[c] = (wide[c] - mean) * rstd * (gain[c] + plus);
    }
    NarrowChunk(y, count, out);
  }
}

template <class T>
struct NormGradSums {
  T dy_gain = 0;       // sum of dy * gain
  T dy_gain_xhat = 0;  // sum of dy * gain * xhat
};

// scratch = g = dy * gain, with dy summed over its partials; adds the row to dgain and dshift.
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE NormGradSums<T> GainGrad(const AddNormGradRows<S>& a, int64_t row, T* dgain,
                                          T* dshift, T* __restrict__ scratch) {
  const int64_t h = a.h;
  const S* __restrict__ x = a.residual_out + row * h;
  const T mean = a.layer_norm ? a.mean[row] : T{0};
  const T rstd = a.rstd[row];
  const T plus = a.one_plus ? T{1} : T{0};
  const S* __restrict__ first = a.dy[0] + row * h;
  for (int64_t c = 0; c < h; ++c) scratch[c] = Widen(first[c]);
  for (int p = 1; p < a.num_dy; ++p) AddRow(scratch, a.dy[p] + row * h, h);
  if (a.rounded) RoundRow<S>(h, scratch);
  if (dshift != nullptr) AddRow(dshift, scratch, h);
  for (int64_t c = 0; c < h; ++c) dgain[c] += scratch[c] * ((Widen(x[c]) - mean) * rstd);
  for (int64_t c = 0; c < h; ++c) scratch[c] *= Widen(a.gain[c]) + plus;
  // The shortcut sum(g xhat) = rstd (sum(g x) - mean sum(g)) would suffer from cancellation, so the
  // mean is subtracted first.
  NormGradSums<T> sums;
  if (a.layer_norm) sums.dy_gain = Sum(scratch, h);
  sums.dy_gain_xhat =
      rstd * LaneSum<T>(
                 h, [ scratch, x, mean ](Lanes<T> * sum, int64_t i) __attribute__((always_inline)) {
                   Lanes<T> g, v;
                   g.Load(scratch + i);
                   v.Load(x + i);
                   for (int k = 0; k < Lanes<T>::kVectors; ++k)
                     sum->v[k] += g.v[k] * (v.v[k] - mean);
                 },
                 [ scratch, x, mean ](int64_t i)
                     __attribute__((always_inline)) { return scratch[i] * (Widen(x[i]) - mean); });
  return sums;
}

// scratch = the norm's part of the gradient of its input:
// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy * gain; RMSNorm has no mean(g).
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE void NormInputGrad(const AddNormGradRows<S>& a, int64_t row, T* dgain, T* dshift,
                                    T* __restrict__ scratch) {
  const NormGradSums<T> sums = GainGrad(a, row, dgain, dshift, scratch);
  const S* __restrict__ x = a.residual_out + row * a.h;
  const T mean = a.layer_norm ? a.mean[row] : T{0};
  const T rstd = a.rstd[row];
  const T mean_g = sums.dy_gain / static_cast<T>(a.h);
  const T slope = rstd * sums.dy_gain_xhat / static_cast<T>(a.h);
  for (int64_t c = 0; c < a.h; ++c) {
    scratch[c] = rstd * (scratch[c] - mean_g - (Widen(x[c]) - mean) * slope);
  }
}

// gradient *= the row's dropout multipliers.
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE void BranchGrad(const AddNormGradRows<S>& a, int64_t row,
                                 T* __restrict__ gradient) {
  T multiplier[kDropoutChunk];
  for (int64_t c = 0; c < a.h; c += kDropoutChunk) {
    const int64_t count = a.h - c < kDropoutChunk ? a.h - c : kDropoutChunk;
    RowDropout(a.dropout, row, a.batch, c, multiplier);
    for (int64_t i = 0; i < count; ++i) gradient[c + i] *= multiplier[i];
  }
}

}  // namespace

template <class S>
void AddNormRange(const AddNormRows<S>& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    S* out = a.residual_out + row * a.h;
    CloseBranch(a, row, out);
    if (a.gain != nullptr) Normalise(a, row, out);
  }
}

template <class S>
void AddNormGradRange(const AddNormGradRows<S>& a, int64_t row_begin, int64_t row_end,
                      const AddNormGradSums<Compute<S>>& to) {
  Compute<S>* const scratch = to.scratch;
  for (int64_t row = row_begin; row < row_end; ++row) {
    if (a.gain != nullptr) {
      NormInputGrad(a, row, to.dgain, to.dshift, scratch);
    } else {
      for (int64_t c = 0; c < a.h; ++c) scratch[c] = 0;
    }
    if (a.dresidual_in != nullptr) AddRow(scratch, a.dresidual_in + row * a.h, a.h);
    StoreRow(scratch, a.h, a.dresidual + row * a.h);
    if (a.dbranch != nullptr) {
      BranchGrad(a, row, scratch);
      StoreRow(scratch, a.h, a.dbranch + row * a.h);
    }
    if (to.dbias != nullptr) AddRow(to.dbias, scratch, a.h);
  }
}

template void AddNormRange<float>(const AddNormRows<float>&, int64_t, int64_t);
template void AddNormGradRange<float>(const AddNormGradRows<float>&, int64_t, int64_t,
                                      const AddNormGradSums<float>&);
template void AddNormRange<double>(const AddNormRows<double>&, int64_t, int64_t);
template void AddNormGradRange<double>(const AddNormGradRows<double>&, int64_t, int64_t,
                                       const AddNormGradSums<double>&);
template void AddNormRange<Bf16>(const AddNormRows<Bf16>&, int64_t, int64_t);
template void AddNormGradRange<Bf16>(const AddNormGradRows<Bf16>&, int64_t, int64_t,
                                     const AddNormGradSums<float>&);
template void AddNormRange<F16>(const AddNormRows<F16>&, int64_t, int64_t);
template void AddNormGradRange<F16>(const AddNormGradRows<F16>&, int64_t, int64_t,
                                    const AddNormGradSums<float>&);

}  // namespace mt::kernels::cpu
