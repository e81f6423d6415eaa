// Rotation of q and k in place on the packed projection: a thread rotates eight pairs. With QK norm
// before it: qk_norm.cu.
// Legend: as in kernels/ops/rope.h.
#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/rows.h"
#include "kernels/cuda/norm_rope/rope_rows.cuh"
#include "kernels/ops/row_positions.h"

namespace mt::kernels::cuda {
namespace {

// A thread rotates pairs [p, p + 8) of one head of one row. 256 threads.
template <class S, bool kBack, Access kAccess>
__global__ void __launch_bounds__(kRopeThreads)
    TurnKernel(const RotateRows<S> a, const Divider groups) {
  WaitForKernelBefore();
  const int64_t half = a.r / 2;
  const uint32_t index = blockIdx.x * kRopeThreads + threadIdx.x;
  if (index >= a.rows * a.heads.divisor() * groups.divisor()) return;
  uint32_t group, head;
  const int64_t row = a.heads.Quotient(groups.Quotient(index, &group), &head);
  const int64_t p = int64_t{group} * kGroup;
  const int count = static_cast<int>(min(half - p, int64_t{kGroup}));
  S* const first = a.qkv + row * (a.a + 2 * a.g) * a.d + head * a.d + p;
  const float* const cos =
      a.table + a.positions[a.rows_per_position.Quotient(static_cast<uint32_t>(row))] * a.r + p;
  Float8 x = Load<kAccess>(first, count), y = Load<kAccess>(first + half, count);
  const Float8 c = Load<kAccess>(cos, count), s = Load<kAccess>(cos + half, count);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const Pair turned = TurnPair({x.v[i], y.v[i]}, c.v[i], kBack ? -s.v[i] : s.v[i]);
    x.v[i] = turned.first;
    y.v[i] = turned.second;
  }
  Store<kAccess>(x, first, count);
  Store<kAccess>(y, first + half, count);
}

void CheckShape(const RotateShape& z, const Tensor& qkv) {
  CHECK_EQ(qkv.shape[1], (z.a + 2 * z.g) * z.d);
  CHECK_LE(z.channels(), z.d);
  if (z.table) {
    CHECK(z.table.shape[1] % 2 == 0 && z.table.shape[1] <= z.channels())
        << z.table.shape[1] << " rotated channels of " << z.channels();
  }
  CHECK_EQ(static_cast<bool>(z.q_gain), static_cast<bool>(z.k_gain));
  if (z.q_gain) {
    CHECK(z.q_gain.NumElements() == z.d && z.k_gain.NumElements() == z.d);
    CHECK_LE(z.d, kLargestNormedHead);
  }
}

void CheckKept(const RotateShape& z, const Tensor& input, const Tensor& rstd, int64_t rows) {
  CHECK_EQ(input.NumElements(), rows * (z.a + z.g) * z.d);
  CHECK_EQ(rstd.NumElements(), rows * (z.a + z.g));
}

template <class S>
RotateRows<S> Raw(const RotateShape& z, const Tensor& qkv) {
  const int64_t rows = qkv.shape[0];
  return {
      .rows = rows,
      .a = z.a,
      .g = z.g,
      .d = z.d,
      .r = z.table ? z.table.shape[1] : 0,
      .channels = static_cast<float>(z.channels()),
      .rows_per_position = Divider(z.table ? RowsPerPosition(z.positions, rows, z.batch) : z.batch),
      .heads = Divider(z.a + z.g),
      .qkv = qkv.Data<S>(),
      .table = DataOrNull<float>(z.table),
      .positions = DataOrNull<int32_t>(z.positions),
      .q_gain = DataOrNull<S>(z.q_gain),
      .k_gain = DataOrNull<S>(z.k_gain),
      .plus = z.one_plus ? 1.0F : 0.0F};
}

template <class S, bool kBack>
void Turn(const Stream& stream, const RotateRows<S>& a) {
  const int64_t half = a.r / 2;
  if (half == 0 || a.rows == 0) return;
  const bool aligned =
      half % kGroup == 0 && a.d % kGroup == 0 && IsAligned16(a.qkv) && IsAligned16(a.table);
  const int64_t groups = base::CeilDiv(half, int64_t{kGroup});
  const int64_t threads = a.rows * (a.a + a.g) * groups;
  CheckCountable(threads + kRopeThreads);
  const auto kernel =
      aligned ? TurnKernel<S, kBack, Access::kVector> : TurnKernel<S, kBack, Access::kElements>;
  LaunchDependent(stream, kernel,
                  {static_cast<unsigned>(base::CeilDiv(threads, kRopeThreads)), kRopeThreads}, a,
                  Divider(groups));
  CheckLaunch("Rotate");
}

int64_t GradBlocks(int64_t rows, const DeviceLimits& limits) {
  return std::clamp<int64_t>(rows, 1, 4 * limits.num_sms);
}

}  // namespace

void CudaRope::Rotate(Stream& stream, const RotateArgs& a) const {
  const RotateShape& z = a.shape;
  const int64_t rows = a.qkv.shape[0];
  CheckShape(z, a.qkv);
  if (z.q_gain) CheckKept(z, a.input, a.rstd, rows);
  ForGpuType(a.qkv.dtype, "Rotate", [&](auto zero) {
    using S = decltype(zero);
    RotateRows<S> raw = Raw<S>(z, a.qkv);
    if (!z.q_gain) return Turn<S, false>(stream, raw);
    raw.eps = static_cast<float>(a.eps);
    raw.input = a.input.Data<S>();
    raw.rstd = a.rstd.Data<float>();
    LaunchNorm(stream, raw);
  });
}

int64_t CudaRope::WorkspaceBytes(const RotateGradArgs& a) const {
  if (!a.shape.q_gain) return 0;
  return GradBlocks(a.dqkv.shape[0], limits_) * 2 * a.shape.d * int64_t{sizeof(float)};
}

void CudaRope::RotateGrad(Stream& stream, const RotateGradArgs& a) const {
  const RotateShape& z = a.shape;
  const int64_t rows = a.dqkv.shape[0];
  CheckShape(z, a.dqkv);
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  if (z.q_gain) {
    CheckKept(z, a.input, a.rstd, rows);
    CHECK(a.dq_gain.NumElements() == z.d && a.dk_gain.NumElements() == z.d);
  }
  ForGpuType(a.dqkv.dtype, "RotateGrad", [&](auto zero) {
    using S = decltype(zero);
    RotateRows<S> raw = Raw<S>(z, a.dqkv);
    if (!z.q_gain) return Turn<S, true>(stream, raw);
    raw.input = a.input.Data<S>();
    raw.rstd = a.rstd.Data<float>();
    raw.sums = static_cast<float*>(a.workspace.data);
    const int64_t blocks = GradBlocks(rows, limits_);
    LaunchNormGrad(stream, raw, blocks);
    const ColumnPartials all{.data = raw.sums, .blocks = blocks, .stride = 2 * z.d};
    CombineColumns(stream, all, z.d, a.mode, {a.dq_gain, a.dk_gain});
  });
}

}  // namespace mt::kernels::cuda
