// Cross-entropy: checks and the split of rows over threads. Statistics are per row; loss sums go
// through a fixed number of row blocks, so they do not depend on the thread count.
#include <algorithm>
#include <array>

#include "common/base/math.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/loss_loops.h"

namespace mt::kernels::cpu {
namespace {

// Blocks of rows over which the loss is summed first; their number depends on the shape alone.
constexpr int64_t kBlocks = 64;

// Returns the number of this shard's columns that are not padding.
int64_t ValidColumns(int64_t v, int64_t first_column, int64_t real_columns) {
  return std::clamp<int64_t>(real_columns - first_column, 0, v);
}

template <class S>
void FinishRows(ThreadPool& pool, const LossFinishArgs& a) {
  const int64_t rows = a.logits.shape[0], v = a.logits.shape[1];
  const LossFinishRows<S> raw{.logits = a.logits.Data<S>(),
                              .v = v,
                              .valid = ValidColumns(v, a.first_column, a.real_columns),
                              .labels = a.labels.Data<int32_t>(),
                              .first_column = a.first_column,
                              .stats = a.stats.Data<Compute<S>>(),
                              .shards = a.stats.shape[0],
                              .rows = rows,
                              .weight = a.weight.Data<float>(),
                              .seed = a.seed * (a.loss_scale == nullptr ? 1.0 : *a.loss_scale),
                              .write_gradient = a.write_gradient};
  std::array<double, 2 * kBlocks> sums{};
  pool.ForRanges(std::min(rows, kBlocks), 1, [&](int64_t begin, int64_t end) {
    const int64_t blocks = std::min(rows, kBlocks);
    for (int64_t block = begin; block < end; ++block) {
      LossFinishRange(raw, rows * block / blocks, rows * (block + 1) / blocks,
                      &sums[static_cast<size_t>(2 * block)]);
    }
  });
  double* const out = a.sums.Data<double>();
  for (size_t block = 0; block < kBlocks; ++block) {
    out[0] += sums[2 * block];
    out[1] += sums[2 * block + 1];
  }
}

}  // namespace

void CpuLoss::Stats(Stream& /*stream*/, const LossStatsArgs& a) const {
  const int64_t rows = a.logits.shape[0], v = a.logits.shape[1];
  CHECK(a.labels.NumElements() == rows && a.stats.NumElements() == 3 * rows);
  ForFloatType(a.logits.dtype, "loss Stats", [&](auto zero) {
    using S = decltype(zero);
    const LossStatsRows<S> raw{.logits = a.logits.Data<S>(),
                               .v = v,
                               .valid = ValidColumns(v, a.first_column, a.real_columns),
                               .labels = a.labels.Data<int32_t>(),
                               .first_column = a.first_column,
                               .stats = a.stats.Data<Compute<S>>()};
    pool_->ForRanges(rows, RowGrain(v),
                     [&](int64_t begin, int64_t end) { LossStatsRange(raw, begin, end); });
  });
}

void CpuLoss::Finish(Stream& /*stream*/, const LossFinishArgs& a) const {
  const int64_t rows = a.logits.shape[0];
  CHECK_EQ(a.stats.shape.rank(), 3);
  CHECK_EQ(a.stats.NumElements(), a.stats.shape[0] * rows * 3);
  CHECK(a.labels.NumElements() == rows && a.weight.NumElements() == rows);
  CHECK_EQ(a.sums.NumElements(), 2);
  ForFloatType(a.logits.dtype, "loss Finish",
               [&](auto zero) { FinishRows<decltype(zero)>(*pool_, a); });
}

}  // namespace mt::kernels::cpu
