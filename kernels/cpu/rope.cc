// Rotary embedding and QK norm: checks, and the split of rows over threads. Gradients of the gains
// go through fixed blocks of rows (row_blocks.h).
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/rope_loops.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/ops/row_positions.h"

namespace mt::kernels::cpu {
namespace {

// Rows of d elements per block: dq_gain, dk_gain, and one row of scratch.
constexpr int64_t kRotatedRowsPerBlock = 3;

void CheckShape(const RotateShape& z, const Tensor& qkv) {
  CHECK_EQ(qkv.shape[1], (z.a + 2 * z.g) * z.d);
  CHECK_LE(z.channels(), z.d);
  if (z.table) {
    CHECK(z.table.shape[1] % 2 == 0 && z.table.shape[1] <= z.channels())
        << z.table.shape[1] << " rotated channels of " << z.channels();
  }
  CHECK_EQ(static_cast<bool>(z.q_gain), static_cast<bool>(z.k_gain));
  if (z.q_gain) CHECK(z.q_gain.NumElements() == z.d && z.k_gain.NumElements() == z.d);
}

void CheckKept(const RotateShape& z, const Tensor& input, const Tensor& rstd, int64_t rows) {
  CHECK_EQ(input.NumElements(), rows * (z.a + z.g) * z.d);
  CHECK_EQ(rstd.NumElements(), rows * (z.a + z.g));
}

template <class S>
RotateRows<S> Raw(const RotateShape& z, const Tensor& qkv) {
  const int64_t rows = qkv.shape[0];
  return {.rows_per_position = z.table ? RowsPerPosition(z.positions, rows, z.batch) : z.batch,
          .a = z.a,
          .g = z.g,
          .d = z.d,
          .channels = z.channels(),
          .r = z.table ? z.table.shape[1] : 0,
          .qkv = qkv.Data<S>(),
          .table = DataOrNull<Compute<S>>(z.table),
          .positions = DataOrNull<int32_t>(z.positions),
          .q_gain = DataOrNull<S>(z.q_gain),
          .k_gain = DataOrNull<S>(z.k_gain),
          .one_plus = z.one_plus};
}

template <class S>
void GradWithNorm(ThreadPool& pool, const RotateGradArgs& a, const RotateRows<S>& raw) {
  using T = Compute<S>;
  const int64_t rows = a.dqkv.shape[0], d = raw.d;
  const RowBlocks blocks = SplitRows(rows);
  T* const sums = static_cast<T*>(a.workspace.data);
  pool.ForRanges(blocks.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      T* const mine = sums + block * kRotatedRowsPerBlock * d;
      std::memset(mine, 0, static_cast<size_t>(kRotatedRowsPerBlock * d) * sizeof(T));
      RotateGradRange<S>(raw, block * blocks.rows, std::min(rows, (block + 1) * blocks.rows),
                         {.dq_gain = mine, .dk_gain = mine + d, .scratch = mine + 2 * d});
    }
  });
  const BlockSums<T> all{sums, blocks.count, kRotatedRowsPerBlock};
  CombineBlocks(all, 0, a.mode, a.dq_gain);
  CombineBlocks(all, 1, a.mode, a.dk_gain);
}

}  // namespace

void CpuRope::Rotate(Stream& /*stream*/, const RotateArgs& a) const {
  const RotateShape& z = a.shape;
  const int64_t rows = a.qkv.shape[0];
  CheckShape(z, a.qkv);
  if (z.q_gain) CheckKept(z, a.input, a.rstd, rows);
  ForFloatType(a.qkv.dtype, "Rotate", [&](auto zero) {
    using S = decltype(zero);
    RotateRows<S> raw = Raw<S>(z, a.qkv);
    if (z.q_gain) {
      raw.eps = static_cast<Compute<S>>(a.eps);
      raw.input = a.input.Data<S>();
      raw.rstd = a.rstd.Data<Compute<S>>();
    }
    pool_->ForRanges(rows, RowGrain((z.a + z.g) * z.d),
                     [&](int64_t begin, int64_t end) { RotateRange(raw, begin, end); });
  });
}

int64_t CpuRope::WorkspaceBytes(const RotateGradArgs& a) const {
  if (!a.shape.q_gain) return 0;
  return SplitRows(a.dqkv.shape[0]).count * kRotatedRowsPerBlock * a.shape.d *
         SizeOf(AccumulatorOf(a.dqkv.dtype));
}

void CpuRope::RotateGrad(Stream& /*stream*/, const RotateGradArgs& a) const {
  const RotateShape& z = a.shape;
  const int64_t rows = a.dqkv.shape[0];
  CheckShape(z, a.dqkv);
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  if (z.q_gain) {
    CheckKept(z, a.input, a.rstd, rows);
    CHECK(a.dq_gain.NumElements() == z.d && a.dk_gain.NumElements() == z.d);
  }
  ForFloatType(a.dqkv.dtype, "RotateGrad", [&](auto zero) {
    using S = decltype(zero);
    RotateRows<S> raw = Raw<S>(z, a.dqkv);
    if (z.q_gain) {
      raw.input = a.input.Data<S>();
      raw.rstd = a.rstd.Data<Compute<S>>();
      return GradWithNorm(*pool_, a, raw);
    }
    pool_->ForRanges(rows, RowGrain((z.a + z.g) * z.d),
                     [&](int64_t begin, int64_t end) { RotateGradRange<S>(raw, begin, end, {}); });
  });
}

}  // namespace mt::kernels::cpu
