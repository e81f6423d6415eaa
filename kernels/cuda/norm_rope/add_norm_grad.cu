// The gradient of residual add + norm in one pass over memory. A team of threads owns all columns,
// eight per thread and V, and walks through rows one by one, so that column sums stay in registers.
// The next rows are copied into shared memory meanwhile, each thread's share by itself, so memory
// is busy while the sums of a row travel through the team. Teams are joined at the end of a block,
// blocks by CombineColumns: no atomics, equal bits in every run.
// Legend: h hidden, V groups of eight columns per thread.
#include <algorithm>
#include <string>

#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/rows.h"
#include "kernels/cuda/norm_rope/add_norm_grad.cuh"

namespace mt::kernels::cuda {
namespace {

// Up to Z::threads threads, one block per SM. Dynamic shared memory: the gain and the ring, later
// the teams' sums; see PlanOf.
template <class S, class Z>
__global__ void __launch_bounds__(Z::threads, 1) GradKernel(const GradRows<S> a) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float2 warp_sums[2][Z::threads / kWarp];
  auto* const gain = reinterpret_cast<float*>(shared);
  const int64_t gain_floats = Z::shared_gain ? a.h : 0;
  const int team = static_cast<int>(threadIdx.x) / a.team_size;
  const GradTeam<S, Z> z{a,
                         team,
                         static_cast<int>(threadIdx.x) - team * a.team_size,
                         {reinterpret_cast<uint4*>(gain + gain_floats) + threadIdx.x},
                         reinterpret_cast<const float4*>(gain),
                         warp_sums};
  WaitForKernelBefore();
  const TeamRows rows(static_cast<int>(a.rows), a.teams, team);
#pragma unroll
  for (int s = 0; s + 1 < Z::stages; ++s) {
    const int row = rows.Of(rows.first + s * rows.step);
    if (row >= 0) z.Fetch(row, s);
    CommitCopies();
  }
  if (Z::shared_gain && a.num_dy > 0) {
    FillGain(a, gain);
    __syncthreads();
  }
  Sums<Z::V> sums{};
  RowScalars next;
  if (rows.Of(rows.first) >= 0) next = z.Scalars(rows.Of(rows.first));
  int stage = 0, turn = 0;
  // Teams without a row only take part in the barriers.
  for (int counted = rows.first; counted < rows.stop; counted += rows.step, ++turn) {
    const int row = rows.Of(counted), next_row = rows.Of(counted + rows.step);
    const int ahead = rows.Of(counted + (Z::stages - 1) * rows.step);
    const int free_stage = stage == 0 ? Z::stages - 1 : stage - 1;
    if (ahead >= 0) z.Fetch(ahead, free_stage);
    CommitCopies();
    const RowScalars scalars = next;
    if (next_row >= 0) next = z.Scalars(next_row);
    WaitCopies<Z::stages - 1>();
    float2 row_sums{0, 0};
    if (a.num_dy > 0) {
      if (row >= 0) row_sums = z.GainGrad(row, stage, scalars, &sums);
      row_sums = z.TeamSum(row_sums, turn);
    }
    if (row >= 0) z.Finish(row, stage, scalars, row_sums, &sums);
    stage = stage + 1 == Z::stages ? 0 : stage + 1;
  }
  LetNextKernelBegin();
  __syncthreads();
  z.JoinTeams(sums, gain);
}

// Partition of a call into blocks and teams.
struct GradPlan {
  int team_size = 0, teams = 0;  // 0 teams: the device has too little shared memory
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
};

struct GradCall {
  const Stream* stream;
  const DeviceLimits& limits;
  int64_t shared_limit;  // bytes per block
  GradMode mode;
  SumOutputs outs;
};

template <class S, class Z>
GradPlan PlanOf(const GradCall& call, int64_t rows, int64_t h) {
  GradPlan plan;
  plan.team_size = static_cast<int>(base::RoundUp(base::CeilDiv(h, Z::V * kGroup), kWarp));
  if (Z::warp_team) CHECK_EQ(h, Z::V * kGroup * kWarp);
  const int64_t gain_bytes = Z::shared_gain ? h * int64_t{sizeof(float)} : 0;
  for (plan.teams = Z::threads / plan.team_size; plan.teams > 0; --plan.teams) {
    const int64_t threads = Z::shared_gain ? Z::threads : plan.teams * plan.team_size;
    plan.shared_bytes =
        std::max(gain_bytes + threads * RowRing<S, Z>::kThreadBytes,
                 plan.teams * kSums * kGroup * JoinStride(h) * int64_t{sizeof(float)});
    if (plan.shared_bytes <= call.shared_limit) break;
  }
  if (plan.teams == 0) return plan;
  plan.blocks = std::clamp<int64_t>(base::CeilDiv(rows, plan.teams), 1, call.limits.num_sms);
  return plan;
}

// Launches the kernel of shape Z; returns false if the device has too little shared memory for it.
template <class S, class Z>
bool Launch(const GradCall& call, GradRows<S> a) {
  const GradPlan plan = PlanOf<S, Z>(call, a.rows, a.h);
  if (plan.teams == 0) return false;
  a.team_size = plan.team_size;
  a.teams = plan.teams;
  CUDA_CHECK(cudaFuncSetAttribute(GradKernel<S, Z>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(plan.shared_bytes)));
  LaunchDependent(*call.stream, GradKernel<S, Z>,
                  {static_cast<unsigned>(plan.blocks),
                   static_cast<unsigned>(plan.team_size * plan.teams), plan.shared_bytes},
                  a);
  CheckLaunch("AddNormGrad");
  CombineColumns(*call.stream, {.data = a.sums, .blocks = plan.blocks, .stride = kSums * a.h}, a.h,
                 call.mode, call.outs);
  return true;
}

constexpr int kWideThreads = 512;
constexpr int kStages = 3;
constexpr int64_t kStaticSharedBytes = 1024;  // bytes, upper bound of warp_sums

// Launches a shape that copies rows ahead, with as many threads as fit an SM's registers and shared
// memory; returns false if none fits the call.
template <class S>
bool LaunchAhead(const GradCall& call, const GradRows<S>& a) {
  constexpr Access kVector = Access::kVector;
  constexpr int kThreads = sizeof(S) == 2 ? 512 : 256;
  if (a.num_dy > 1) {
    using Several = GradShape<4, false, kStages, true, kVector, kThreads / 2>;
    return a.h <= int64_t{kThreads} / 2 * 4 * kGroup && Launch<S, Several>(call, a);
  }
  // Where a team is a warp, eight of them per SM are fastest as soon as each has three groups of
  // columns: with more, the SMs get unequal shares of the memory's bandwidth, and the slowest one
  // determines the time (README.md, decision 10).
  constexpr int kFew = 256, kThreads512 = sizeof(S) == 2 ? 384 : 256,
                kThreads1024 = sizeof(S) == 2 ? kFew : 192;
  switch (a.h) {
    case 256:
      return Launch<S, GradShape<1, true, kStages, false, kVector, kThreads>>(call, a);
    case 512:
      return Launch<S, GradShape<2, true, kStages, false, kVector, kThreads512>>(call, a);
    case 768:
      return Launch<S, GradShape<3, true, kStages, false, kVector, kFew>>(call, a);
    case 1024:
      return Launch<S, GradShape<4, true, kStages, false, kVector, kThreads1024>>(call, a);
    default:
      using Teams = GradShape<2, false, kStages, false, kVector, kThreads>;
      return a.h <= int64_t{kThreads} * 2 * kGroup && Launch<S, Teams>(call, a);
  }
}

// For calls where nothing can be copied ahead. It fits wherever a single team does.
template <Access kAccess>
using WideShape = GradShape<4, false, 1, true, kAccess, kWideThreads>;

template <class S>
void LaunchFor(const GradCall& call, const GradRows<S>& a, bool aligned) {
  if (aligned && LaunchAhead(call, a)) return;
  const auto launch =
      aligned ? Launch<S, WideShape<Access::kVector>> : Launch<S, WideShape<Access::kElements>>;
  CHECK(launch(call, a)) << "AddNormGrad of " << a.h << " columns on this GPU";
}

// Throws DeviceError if this shape needs more shared memory than the GPU has: with 99 KiB per block
// (compute capability 8.6, 8.9) the limit is about 8,300 columns.
void CheckFits(const DeviceLimits& limits, DType dtype, int64_t rows, int64_t h) {
  ForGpuType(dtype, "AddNormGrad", [&](auto zero) {
    using S = decltype(zero);
    const GradCall call{.stream = nullptr,
                        .limits = limits,
                        .shared_limit = limits.shared_bytes - kStaticSharedBytes};
    if (PlanOf<S, WideShape<Access::kVector>>(call, rows, h).teams > 0) return;
    const auto text = [](int64_t n) { return std::to_string(n); };
    throw DeviceError("cuda device " + text(limits.ordinal) + ": AddNormGrad of " + text(h) +
                      " columns has no room in this GPU's shared memory (sm_" + text(limits.major) +
                      text(limits.minor) + ": " + text(limits.shared_bytes) +
                      " bytes a block): use a smaller model.hidden_size, or placement.device: cpu");
  });
}

template <class S>
GradRows<S> Raw(const AddNormGradArgs& a) {
  const int64_t rows = a.dresidual.shape[0], h = a.dresidual.shape[1];
  return {.rows = rows,
          .h = h,
          .num_dy = a.dy.count,
          .rounded = a.dy.rounded,
          .dresidual_in = DataOrNull<S>(a.dresidual_in),
          .residual_out = DataOrNull<S>(a.residual_out),
          .mean = a.kind == NormKind::kLayerNorm ? DataOrNull<float>(a.mean) : nullptr,
          .rstd = DataOrNull<float>(a.rstd),
          .gain = DataOrNull<S>(a.gain),
          .plus = a.one_plus ? 1.0F : 0.0F,
          .dropout = RawDropout(a.dropout, rows, a.batch),
          .dresidual = a.dresidual.Data<S>(),
          .dbranch = a.dropout.rate.active() ? a.dbranch.Data<S>() : nullptr,
          .sums = static_cast<float*>(a.workspace.data)};
}

template <class S>
void Grad(const Stream& stream, const AddNormGradArgs& a, const DeviceLimits& limits) {
  GradRows<S> raw = Raw<S>(a);
  const bool aligned =
      FillPartials(a.dy, raw.rows * raw.h, raw.dy) &&
      RowsAligned<S>(raw.h, a.dresidual_in, a.residual_out, a.gain, a.dresidual, a.dbranch);
  const GradCall call{&stream,
                      limits,
                      limits.shared_bytes - kStaticSharedBytes,
                      a.mode,
                      {a.dgain, a.dshift, a.dbias}};
  LaunchFor(call, raw, aligned);
}

}  // namespace

int64_t CudaAddNorm::WorkspaceBytes(const AddNormGradArgs& a) const {
  CheckFits(limits_, a.dresidual.dtype, a.dresidual.shape[0], a.dresidual.shape[1]);
  return limits_.num_sms * kSums * a.dresidual.shape[1] * int64_t{sizeof(float)};
}

void CudaAddNorm::AddNormGrad(Stream& stream, const AddNormGradArgs& a) const {
  const int64_t rows = a.dresidual.shape[0], h = a.dresidual.shape[1];
  CHECK(a.batch > 0 && rows % a.batch == 0) << rows << " rows, batch " << a.batch;
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  CHECK_LE(h, int64_t{kWideThreads} * 4 * kGroup);
  CheckCountable(rows + (int64_t{1} << 16));  // loops count past the last row
  if (a.gain) {
    CHECK(a.dy.count > 0 && a.residual_out.NumElements() == rows * h &&
          a.rstd.NumElements() == rows);
    CHECK_EQ(a.dgain.NumElements(), h);
  } else {
    CHECK(a.dy.count == 0 && !a.dgain && !a.dshift) << "gradients of a norm that is not there";
  }
  if (a.dropout.rate.active()) {
    CHECK(a.dbranch && a.dbranch.data != a.dresidual.data) << "dropout needs a dbranch of its own";
  } else {
    CHECK(!a.dbranch || a.dbranch.data == a.dresidual.data) << "dbranch is dresidual's buffer";
  }
  ForGpuType(a.dresidual.dtype, "AddNormGrad",
             [&](auto zero) { Grad<decltype(zero)>(stream, a, limits_); });
}

}  // namespace mt::kernels::cuda
