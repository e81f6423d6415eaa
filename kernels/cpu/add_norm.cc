// Residual add and norm, and its gradient: checks, conversion of the arguments to plain pointers,
// and the split of rows over threads. Column sums go through fixed blocks of rows (row_blocks.h),
// so they do not depend on the thread count.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/add_norm_loops.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/ops/row_positions.h"

namespace mt::kernels::cpu {
namespace {

// Rows of h sums per block: dgain, dshift, dbias, and one row of scratch.
constexpr int64_t kRowsPerBlock = 4;

HiddenDropout Raw(const Dropout& d, int64_t rows, int64_t batch) {
  if (!d.rate.active()) return {};
  CHECK(d.samples.NumElements() == batch && d.positions.NumElements() * batch == rows);
  return {.threshold = d.rate.threshold,
          .scale = d.rate.Scale(),
          .key = d.key,
          .samples = d.samples.Data<int64_t>(),
          .positions = d.positions.Data<int32_t>()};
}

template <class S>
void FillPartials(const Partials& partials, int64_t elements, const S** out) {
  CHECK(partials.count >= 0 && partials.count <= kMaxPartials) << partials.count;
  for (int i = 0; i < partials.count; ++i) {
    const Tensor& tensor = partials.tensor[static_cast<size_t>(i)];
    CHECK_EQ(tensor.NumElements(), elements);
    out[i] = tensor.Data<S>();
  }
}

template <class S>
AddNormRows<S> Raw(const AddNormArgs& a) {
  const int64_t rows = a.residual_out.shape[0], h = a.residual_out.shape[1];
  AddNormRows<S> raw{
      .h = h,
      .batch = a.batch,
      .residual = DataOrNull<S>(a.residual),
      .num_partials = a.partials.count,
      .rounded = a.partials.rounded,
      .bias = DataOrNull<S>(a.bias),
      .position_table = DataOrNull<S>(a.position_table),
      .positions = DataOrNull<int32_t>(a.positions),
      .rows_per_position = a.position_table ? RowsPerPosition(a.positions, rows, a.batch) : a.batch,
      .dropout = Raw(a.dropout, rows, a.batch),
      .layer_norm = a.kind == NormKind::kLayerNorm,
      .one_plus = a.one_plus,
      .eps = static_cast<Compute<S>>(a.eps),
      .gain = DataOrNull<S>(a.gain),
      .shift = DataOrNull<S>(a.shift),
      .residual_out = a.residual_out.Data<S>(),
      .y = DataOrNull<S>(a.y),
      .mean = DataOrNull<Compute<S>>(a.mean),
      .rstd = DataOrNull<Compute<S>>(a.rstd)};
  FillPartials(a.partials, rows * h, raw.partials);
  return raw;
}

template <class S>
AddNormGradRows<S> Raw(const AddNormGradArgs& a) {
  const int64_t rows = a.dresidual.shape[0], h = a.dresidual.shape[1];
  const bool dropout = a.dropout.rate.active();
  // Without dropout dresidual and dbranch have the same values, so they share one buffer.
  if (dropout) {
    CHECK(a.dbranch && a.dbranch.data != a.dresidual.data) << "dropout needs a dbranch of its own";
  } else {
    CHECK(!a.dbranch || a.dbranch.data == a.dresidual.data) << "dbranch is dresidual's buffer";
  }
  AddNormGradRows<S> raw{.h = h,
                         .batch = a.batch,
                         .num_dy = a.dy.count,
                         .rounded = a.dy.rounded,
                         .dresidual_in = DataOrNull<S>(a.dresidual_in),
                         .residual_out = DataOrNull<S>(a.residual_out),
                         .mean = DataOrNull<Compute<S>>(a.mean),
                         .rstd = DataOrNull<Compute<S>>(a.rstd),
                         .gain = DataOrNull<S>(a.gain),
                         .layer_norm = a.kind == NormKind::kLayerNorm,
                         .one_plus = a.one_plus,
                         .dropout = Raw(a.dropout, rows, a.batch),
                         .dresidual = a.dresidual.Data<S>(),
                         .dbranch = dropout ? a.dbranch.Data<S>() : nullptr};
  FillPartials(a.dy, rows * h, raw.dy);
  return raw;
}

template <class S>
void Grad(ThreadPool& pool, const AddNormGradArgs& a) {
  using T = Compute<S>;
  const AddNormGradRows<S> raw = Raw<S>(a);
  const int64_t rows = a.dresidual.shape[0], h = raw.h;
  const RowBlocks blocks = SplitRows(rows);
  T* const sums = static_cast<T*>(a.workspace.data);
  pool.ForRanges(blocks.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      T* const mine = sums + block * kRowsPerBlock * h;
      std::memset(mine, 0, static_cast<size_t>(kRowsPerBlock * h) * sizeof(T));
      AddNormGradRange(raw, block * blocks.rows, std::min(rows, (block + 1) * blocks.rows),
                       {.dgain = mine,
                        .dshift = a.dshift ? mine + h : nullptr,
                        .dbias = a.dbias ? mine + 2 * h : nullptr,
                        .scratch = mine + 3 * h});
    }
  });
  const BlockSums<T> all{sums, blocks.count, kRowsPerBlock};
  CombineBlocks(all, 0, a.mode, a.dgain);
  CombineBlocks(all, 1, a.mode, a.dshift);
  CombineBlocks(all, 2, a.mode, a.dbias);
}

}  // namespace

void CpuAddNorm::AddNorm(Stream& /*stream*/, const AddNormArgs& a) const {
  const int64_t rows = a.residual_out.shape[0], h = a.residual_out.shape[1];
  CHECK(a.batch > 0 && rows % a.batch == 0) << rows << " rows, batch " << a.batch;
  if (a.residual) CHECK_EQ(a.residual.NumElements(), rows * h);
  if (a.bias) CHECK_EQ(a.bias.NumElements(), h);
  if (a.gain) {
    CHECK(a.gain.NumElements() == h && a.y.NumElements() == rows * h &&
          a.rstd.NumElements() == rows);
    CHECK(a.kind == NormKind::kRmsNorm || a.mean.NumElements() == rows);
  }
  ForFloatType(a.residual_out.dtype, "AddNorm", [&](auto zero) {
    const auto raw = Raw<decltype(zero)>(a);
    pool_->ForRanges(rows, RowGrain(h),
                     [&](int64_t begin, int64_t end) { AddNormRange(raw, begin, end); });
  });
}

int64_t CpuAddNorm::WorkspaceBytes(const AddNormGradArgs& a) const {
  return SplitRows(a.dresidual.shape[0]).count * kRowsPerBlock * a.dresidual.shape[1] *
         SizeOf(AccumulatorOf(a.dresidual.dtype));
}

void CpuAddNorm::AddNormGrad(Stream& /*stream*/, const AddNormGradArgs& a) const {
  const int64_t rows = a.dresidual.shape[0], h = a.dresidual.shape[1];
  CHECK(a.batch > 0 && rows % a.batch == 0) << rows << " rows, batch " << a.batch;
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  if (a.gain) {
    CHECK(a.dy.count > 0 && a.residual_out.NumElements() == rows * h &&
          a.rstd.NumElements() == rows);
    CHECK_EQ(a.dgain.NumElements(), h);
  } else {
    CHECK(a.dy.count == 0 && !a.dgain && !a.dshift) << "gradients of a norm that is not there";
  }
  ForFloatType(a.dresidual.dtype, "AddNormGrad",
               [&](auto zero) { Grad<decltype(zero)>(*pool_, a); });
}

}  // namespace mt::kernels::cpu
