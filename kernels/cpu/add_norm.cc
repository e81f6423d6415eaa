#include <algorithm>
#include <cstring>

#include "common/base/math.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/add_norm_loops.h"
#include "kernels/cpu/loops/vector_loops.h"

namespace mt::kernels::cpu {
namespace {

// The gains' gradients are summed over blocks of rows whose number depends on the shape alone, then
// over the blocks in order: the same bits with any number of threads.
constexpr int64_t kMaxRowBlocks = 32, kMinBlockRows = 16;

struct RowBlocks {
  int64_t count = 0, rows = 0;
};

RowBlocks SplitRows(int64_t rows) {
  const int64_t per_block = std::max(kMinBlockRows, base::CeilDiv(rows, kMaxRowBlocks));
  return {base::CeilDiv(rows, per_block), per_block};
}

// dgain, dshift, dbias sums and one row of scratch per block.
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

template <class T>
void FillPartials(const Partials& partials, int64_t elements, const T** out) {
  CHECK(partials.count >= 0 && partials.count <= kMaxPartials) << partials.count;
  for (int i = 0; i < partials.count; ++i) {
    const Tensor& tensor = partials.tensor[static_cast<size_t>(i)];
    CHECK_EQ(tensor.NumElements(), elements);
    out[i] = tensor.Data<T>();
  }
}

template <class T>
AddNormRows<T> Raw(const AddNormArgs& a) {
  const int64_t rows = a.residual_out.shape[0], h = a.residual_out.shape[1];
  AddNormRows<T> raw{.h = h,
                     .batch = a.batch,
                     .residual = DataOrNull<T>(a.residual),
                     .num_partials = a.partials.count,
                     .bias = DataOrNull<T>(a.bias),
                     .position_table = DataOrNull<T>(a.position_table),
                     .positions = DataOrNull<int32_t>(a.positions),
                     .dropout = Raw(a.dropout, rows, a.batch),
                     .layer_norm = a.kind == NormKind::kLayerNorm,
                     .one_plus = a.one_plus,
                     .eps = static_cast<T>(a.eps),
                     .gain = DataOrNull<T>(a.gain),
                     .shift = DataOrNull<T>(a.shift),
                     .residual_out = a.residual_out.Data<T>(),
                     .y = DataOrNull<T>(a.y),
                     .mean = DataOrNull<T>(a.mean),
                     .rstd = DataOrNull<T>(a.rstd)};
  FillPartials(a.partials, rows * h, raw.partials);
  return raw;
}

template <class T>
AddNormGradRows<T> Raw(const AddNormGradArgs& a) {
  const int64_t rows = a.dresidual.shape[0], h = a.dresidual.shape[1];
  const bool dropout = a.dropout.rate.active();
  // Without dropout the two gradients are the same values, so one buffer.
  if (dropout) {
    CHECK(a.dbranch && a.dbranch.data != a.dresidual.data) << "dropout needs a dbranch of its own";
  } else {
    CHECK(!a.dbranch || a.dbranch.data == a.dresidual.data) << "dbranch is dresidual's buffer";
  }
  AddNormGradRows<T> raw{.h = h,
                         .batch = a.batch,
                         .num_dy = a.dy.count,
                         .dresidual_in = DataOrNull<T>(a.dresidual_in),
                         .residual_out = DataOrNull<T>(a.residual_out),
                         .mean = DataOrNull<T>(a.mean),
                         .rstd = DataOrNull<T>(a.rstd),
                         .gain = DataOrNull<T>(a.gain),
                         .layer_norm = a.kind == NormKind::kLayerNorm,
                         .one_plus = a.one_plus,
                         .dropout = Raw(a.dropout, rows, a.batch),
                         .dresidual = a.dresidual.Data<T>(),
                         .dbranch = dropout ? a.dbranch.Data<T>() : nullptr};
  FillPartials(a.dy, rows * h, raw.dy);
  return raw;
}

// The block sums of one vector, at rows `slot`, 4 + slot, ... of `sums` [4 * blocks, h].
template <class T>
void CombineBlocks(const T* sums, int64_t slot, int64_t blocks, GradMode mode, const Tensor& out) {
  if (!out) return;
  const int64_t h = out.NumElements();
  ColumnSums(sums + slot * h, {.rows = blocks, .stride = kRowsPerBlock * h, .begin = 0, .end = h},
             mode == GradMode::kAdd, out.Data<T>());
}

template <class T>
void Grad(ThreadPool& pool, const AddNormGradArgs& a) {
  const AddNormGradRows<T> raw = Raw<T>(a);
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
  CombineBlocks(sums, 0, blocks.count, a.mode, a.dgain);
  CombineBlocks(sums, 1, blocks.count, a.mode, a.dshift);
  CombineBlocks(sums, 2, blocks.count, a.mode, a.dbias);
}

}  // namespace

void CpuAddNorm::AddNorm(Stream& /*stream*/, const AddNormArgs& a) const {
  const int64_t rows = a.residual_out.shape[0], h = a.residual_out.shape[1];
  CHECK(a.batch > 0 && rows % a.batch == 0) << rows << " rows, batch " << a.batch;
  if (a.residual) CHECK_EQ(a.residual.NumElements(), rows * h);
  if (a.bias) CHECK_EQ(a.bias.NumElements(), h);
  if (a.position_table) CHECK_EQ(a.positions.NumElements() * a.batch, rows);
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
