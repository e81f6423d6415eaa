// Softmax cross-entropy in two passes over a row: maximum, then the sum of exponentials relative to
// it (so exp never overflows). The gradient overwrites the logits.
#include "kernels/cpu/loops/loss_loops.h"

#include "kernels/cpu/loops/reduce.h"

namespace mt::kernels::cpu {
namespace {

// Returns the sum of e^(x - shift), in chunks that stay in the first-level cache.
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE T SumExp(const S* x, T shift, int64_t n) {
  constexpr int64_t kChunk = 512;
  T terms[kChunk];
  T total = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = n - begin < kChunk ? n - begin : kChunk;
    for (int64_t i = 0; i < count; ++i) terms[i] = Exp(Widen(x[begin + i]) - shift);
    total += Sum(terms, count);
  }
  return total;
}

template <class T>
struct RowStats {
  T max = 0, sum = 0, target = 0;
};

// Combines the row's shards in shard order. A shard of padding columns alone has maximum -infinity
// and sum 0.
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE RowStats<T> Combine(const LossFinishRows<S>& a, int64_t row) {
  RowStats<T> all;
  all.max = static_cast<T>(-__builtin_inf());
  for (int64_t t = 0; t < a.shards; ++t) {
    const T shard_max = a.stats[3 * (t * a.rows + row)];
    all.max = shard_max > all.max ? shard_max : all.max;
  }
  for (int64_t t = 0; t < a.shards; ++t) {
    const T* s = a.stats + 3 * (t * a.rows + row);
    all.sum += s[1] * Exp(s[0] - all.max);
    all.target += s[2];
  }
  return all;
}

}  // namespace

template <class S>
void LossStatsRange(const LossStatsRows<S>& a, int64_t row_begin, int64_t row_end) {
  using T = Compute<S>;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const S* x = a.logits + row * a.v;
    T* stats = a.stats + 3 * row;
    const int64_t label = a.labels[row] - a.first_column;
    stats[0] = Max(x, a.valid);
    stats[1] = SumExp(x, stats[0], a.valid);
    stats[2] = label >= 0 && label < a.valid ? Widen(x[label]) : T{0};
  }
}

template <class S>
void LossFinishRange(const LossFinishRows<S>& a, int64_t row_begin, int64_t row_end, double* sums) {
  using T = Compute<S>;
  for (int64_t row = row_begin; row < row_end; ++row) {
    S* __restrict__ x = a.logits + row * a.v;
    const double weight = static_cast<double>(a.weight[row]);
    if (weight == 0) {  // masked: contributes nothing, not even 0 * infinity
      for (int64_t c = 0; a.write_gradient && c < a.v; ++c) Narrow(T{0}, &x[c]);
      continue;
    }
    const RowStats<T> stats = Combine(a, row);
    const double loss = Log(static_cast<double>(stats.sum)) + static_cast<double>(stats.max) -
                        static_cast<double>(stats.target);
    sums[0] += weight * loss;
    sums[1] += weight;
    if (!a.write_gradient) continue;
    const T scale = static_cast<T>(weight * a.seed);
    const T per_sum = scale / stats.sum;
    const int64_t label = a.labels[row] - a.first_column;
    const bool mine = label >= 0 && label < a.valid;
    // The label's element is computed separately so that it, too, is rounded once.
    const T at_label = mine ? Exp(Widen(x[label]) - stats.max) * per_sum - scale : T{0};
    for (int64_t c = 0; c < a.valid; ++c) Narrow(Exp(Widen(x[c]) - stats.max) * per_sum, &x[c]);
    for (int64_t c = a.valid; c < a.v; ++c) Narrow(T{0}, &x[c]);
    if (mine) Narrow(at_label, &x[label]);
  }
}

template void LossStatsRange<float>(const LossStatsRows<float>&, int64_t, int64_t);
template void LossFinishRange<float>(const LossFinishRows<float>&, int64_t, int64_t, double*);
template void LossStatsRange<double>(const LossStatsRows<double>&, int64_t, int64_t);
template void LossFinishRange<double>(const LossFinishRows<double>&, int64_t, int64_t, double*);
template void LossStatsRange<Bf16>(const LossStatsRows<Bf16>&, int64_t, int64_t);
template void LossFinishRange<Bf16>(const LossFinishRows<Bf16>&, int64_t, int64_t, double*);
template void LossStatsRange<F16>(const LossStatsRows<F16>&, int64_t, int64_t);
template void LossFinishRange<F16>(const LossFinishRows<F16>&, int64_t, int64_t, double*);

}  // namespace mt::kernels::cpu
