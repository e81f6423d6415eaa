// The gradient of AddNorm in one trip through memory. A team of threads owns the columns (eight per
// thread and V) and goes through rows, M at a time, so that column sums stay in registers and the
// two sums a row needs cost one barrier for M rows. Teams are joined at the end of a block, blocks
// by CombineColumns: no atomics, the same bits always. Legend: h hidden, M rows per turn, V groups
// of eight columns per thread.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/add_norm_rows.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.h"

namespace mt::kernels::cuda {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kMaxTeams = 12;
constexpr int kSums = 3;  // dgain, dshift, dbias

template <class S>
struct GradRows {
  int64_t rows, h, batch;
  const S* dy[kMaxPartials];
  int num_dy;  // 0: no norm
  const S* dresidual_in;
  const S* residual_out;
  const float *mean, *rstd;  // mean null for RMSNorm
  const S* gain;
  float plus;
  HiddenDropout dropout;
  S* dresidual;
  S* dbranch;     // null without dropout
  float* sums;    // [grid, kSums, h]
  int team_size;  // threads, a multiple of a warp
  int teams;      // of a block
};

// What a thread holds of M rows. dy stays as it is stored where it is one tensor.
template <class S, int M, int V, bool kSeveral>
struct Held {
  std::conditional_t<kSeveral, Float8, Stored8<S>> dy[M][V];
  Stored8<S> x[M][V], dresidual[M][V];

  __device__ __forceinline__ Float8 Dy(int m, int j) const {
    if constexpr (kSeveral) {
      return dy[m][j];
    } else {
      return Widen(dy[m][j]);
    }
  }
};

// Column sums of a thread: dgain, dshift, dbias.
template <int V>
struct Sums {
  Float8 v[kSums][V];
};

// Sums N values over a warp at once, N a power of two: in each step a lane hands half of its values
// to its partner and keeps the other half. Lanes [k 32/N, (k + 1) 32/N) end with the sum of value
// k.
template <int N>
__device__ __forceinline__ float WarpSums(float (&value)[N]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int offset = kWarp / 2;
#pragma unroll
  for (int n = N; n > 1; n /= 2, offset /= 2) {
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      const float sent = upper ? value[i] : value[i + n / 2];
      const float kept = upper ? value[i + n / 2] : value[i];
      value[i] = kept + __shfl_xor_sync(kAllLanes, sent, offset);
    }
  }
  float sum = value[0];
#pragma unroll
  for (; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
  return sum;
}

// Sums 2 M values over the team; the same values in every thread. Two halves of `shared`
// [2][warps][2 M] alternate, so one barrier a turn is enough.
template <int M>
__device__ __forceinline__ void TeamSums(float (&value)[2 * M], int team, int team_size,
                                         float* shared) {
  constexpr int kLanes = kWarp / (2 * M);  // that end with one value
  const int warps = team_size / kWarp;
  const int thread = static_cast<int>(threadIdx.x) - team * team_size;
  const float sum = WarpSums(value);
  if (thread % kLanes == 0) shared[thread / kLanes] = sum;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 2 * M; ++k) value[k] = 0;
  for (int w = 0; w < warps; ++w) {
#pragma unroll
    for (int k = 0; k < 2 * M; ++k) value[k] += shared[w * 2 * M + k];
  }
}

template <class S, int M, int V, bool kSeveral, Access kAccess>
struct Turn {
  using Rows = Held<S, M, V, kSeveral>;
  const GradRows<S>& a;
  const int thread;   // in its team
  const int64_t row;  // the first of M

  __device__ __forceinline__ int64_t Column(int j) const {
    return int64_t{j * a.team_size + thread} * kGroup;
  }
  __device__ __forceinline__ int Count(int j) const {
    return static_cast<int>(max(int64_t{0}, min(a.h - Column(j), int64_t{kGroup})));
  }

  // All loads are asked for before any of them is used.
  __device__ __forceinline__ void LoadRows(Rows* held) const {
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const int count = row + m < a.rows ? Count(j) : 0;
        const int64_t at = (row + m) * a.h + Column(j);
        held->x[m][j] = Stored8<S>{};
        held->dresidual[m][j] = Stored8<S>{};
        held->dy[m][j] = {};
        if (count == 0) continue;
        if (a.num_dy > 0) {
          held->x[m][j] = LoadStored<kAccess>(a.residual_out + at, count);
          if constexpr (!kSeveral) held->dy[m][j] = LoadStored<kAccess>(a.dy[0] + at, count);
        }
        if (a.dresidual_in != nullptr) {
          held->dresidual[m][j] = LoadStored<kAccess>(a.dresidual_in + at, count);
        }
        if constexpr (kSeveral) {
          for (int p = 0; p < a.num_dy; ++p) {
            const Float8 more = Load<kAccess>(a.dy[p] + at, count);
#pragma unroll
            for (int i = 0; i < kGroup; ++i) held->dy[m][j].v[i] += more.v[i];
          }
        }
      }
    }
  }

  // Adds the rows to dgain and dshift; sums g = dy gain and g (x - mean) over the row.
  __device__ __forceinline__ void GainGrad(const float (&mean)[M], const float (&rstd)[M],
                                           const Rows& held, Sums<V>* sums,
                                           float (&value)[2 * M]) const {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if (Count(j) == 0) continue;
      const Float8 gain = Load<kAccess>(a.gain + Column(j), Count(j));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        const Float8 x = Widen(held.x[m][j]), dy = held.Dy(m, j);
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          const float deviation = x.v[i] - mean[m];
          sums->v[0][j].v[i] += dy.v[i] * (deviation * rstd[m]);
          sums->v[1][j].v[i] += dy.v[i];
          const float g = dy.v[i] * (gain.v[i] + a.plus);
          value[2 * m] += g;
          value[2 * m + 1] += g * deviation;
        }
      }
    }
  }

  // dresidual = rstd (g - mean(g) - xhat mean(g xhat)) + dresidual_in, then the branch's gradient.
  __device__ __forceinline__ void Finish(const float (&mean)[M], const float (&rstd)[M],
                                         const float (&value)[2 * M], const Rows& held,
                                         Sums<V>* sums) const {
    const float per_column = 1.0F / static_cast<float>(a.h);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int count = Count(j);
      if (count == 0) continue;
      Float8 gain{};
      if (a.num_dy > 0) gain = Load<kAccess>(a.gain + Column(j), count);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        if (row + m >= a.rows) continue;
        const float mean_g = a.mean != nullptr ? value[2 * m] * per_column : 0.0F;
        const float slope = rstd[m] * rstd[m] * value[2 * m + 1] * per_column;
        const int64_t at = (row + m) * a.h + Column(j);
        const Float8 x = Widen(held.x[m][j]), dy = held.Dy(m, j);
        Float8 d = Widen(held.dresidual[m][j]);
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          const float g = dy.v[i] * (gain.v[i] + a.plus);
          d.v[i] += rstd[m] * (g - mean_g - (x.v[i] - mean[m]) * slope);
        }
        Store<kAccess>(d, a.dresidual + at, count);
        if (a.dbranch != nullptr) {
          DropRow(a.dropout, row + m, a.batch, Column(j), &d);
          Store<kAccess>(d, a.dbranch + at, count);
        }
#pragma unroll
        for (int i = 0; i < kGroup; ++i) sums->v[2][j].v[i] += d.v[i];
      }
    }
  }
};

// The block's teams added in order, in shared memory [kSums, h], and written out.
template <class S, int V>
__device__ __forceinline__ void JoinTeams(const GradRows<S>& a, int team, int thread,
                                          const Sums<V>& sums, float* shared) {
  float* const out = a.sums + int64_t{blockIdx.x} * kSums * a.h;
  for (int t = 0; t < a.teams; ++t) {
    if (t == team) {
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const int64_t c = int64_t{j * a.team_size + thread} * kGroup;
#pragma unroll
          for (int i = 0; i < kGroup; ++i) {
            if (c + i >= a.h) break;
            const int64_t at = k * a.h + c + i;
            const float total = t == 0 ? sums.v[k][j].v[i] : shared[at] + sums.v[k][j].v[i];
            if (t + 1 == a.teams) {
              out[at] = total;
            } else {
              shared[at] = total;
            }
          }
        }
      }
    }
    __syncthreads();
  }
}

// Up to kThreads threads, kBlocks blocks an SM; shared: 2 * 2 M floats per warp (static), and
// [kSums, h] floats where a block has more than one team (dynamic).
template <class S, int M, int V, bool kSeveral, bool kAligned, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) GradKernel(const GradRows<S> a) {
  constexpr Access kAccess = kAligned ? Access::kVector : Access::kElements;
  extern __shared__ float joined[];
  __shared__ float warp_sums[2][kMaxThreads / kWarp * 2 * M];
  const int team = static_cast<int>(threadIdx.x) / a.team_size;
  const int thread = static_cast<int>(threadIdx.x) % a.team_size;
  const int first_warp = team * a.team_size / kWarp;
  const int64_t step = int64_t{gridDim.x} * a.teams * M;
  Sums<V> sums{};
  int half = 0;
  // Every team takes the same number of turns; rows past the end are empty.
  for (int64_t first = int64_t{blockIdx.x} * a.teams * M; first < a.rows; first += step) {
    const Turn<S, M, V, kSeveral, kAccess> turn{a, thread, first + team * M};
    Held<S, M, V, kSeveral> held;
    turn.LoadRows(&held);
    float mean[M] = {}, rstd[M] = {}, value[2 * M] = {};
    if (a.num_dy > 0) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
        const int64_t row = min(turn.row + m, a.rows - 1);
        mean[m] = a.mean != nullptr ? a.mean[row] : 0.0F;
        rstd[m] = a.rstd[row];
      }
      turn.GainGrad(mean, rstd, held, &sums, value);
      TeamSums<M>(value, team, a.team_size, warp_sums[half] + first_warp * 2 * M);
    }
    turn.Finish(mean, rstd, value, held, &sums);
    half ^= 1;
  }
  __syncthreads();
  JoinTeams(a, team, thread, sums, joined);
}

// How a call is cut. Narrow rows: two at a time, 288 threads, two blocks an SM; wide ones one at
// a time.
struct GradPlan {
  int64_t rows_at_once = 1, groups = 1;  // M, V
  int team_size = 0, teams = 0;
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
};

constexpr int kNarrowThreads = 288;
constexpr int64_t kNarrow = int64_t{kNarrowThreads} * kGroup;
constexpr int64_t kWide = int64_t{kMaxThreads} * 2 * kGroup;
constexpr int64_t kBlocksPerSm = 2;

GradPlan PlanOf(int64_t rows, int64_t h, bool several, bool aligned, const DeviceLimits& limits) {
  GradPlan plan;
  if (!aligned || h > kWide) {
    plan.groups = 4;
  } else if (h > kNarrow) {
    plan.groups = 2;
  } else {
    plan.rows_at_once = several ? 1 : 2;
  }
  plan.team_size = static_cast<int>(base::RoundUp(base::CeilDiv(h, plan.groups * kGroup), kWarp));
  plan.teams = std::clamp(kNarrowThreads / plan.team_size, 1, kMaxTeams);
  plan.blocks = std::clamp<int64_t>(base::CeilDiv(rows, plan.teams * plan.rows_at_once), 1,
                                    kBlocksPerSm * limits.num_sms);
  plan.shared_bytes = plan.teams > 1 ? kSums * h * int64_t{sizeof(float)} : 0;
  return plan;
}

template <class S, int M, int V, bool kSeveral, bool kAligned, int kThreads, int kBlocks>
void Launch(const Stream& stream, const GradPlan& plan, const GradRows<S>& a) {
  CHECK(plan.rows_at_once == M && plan.groups == V && plan.team_size * plan.teams <= kThreads);
  GradKernel<S, M, V, kSeveral, kAligned, kThreads, kBlocks>
      <<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.team_size * plan.teams),
         static_cast<size_t>(plan.shared_bytes), Raw(stream)>>>(a);
  CheckLaunch("AddNormGrad");
}

template <class S>
void LaunchFor(const Stream& stream, const GradPlan& plan, const GradRows<S>& a, bool aligned) {
  const bool several = a.num_dy > 1;
  if (!aligned) return Launch<S, 1, 4, true, false, kMaxThreads, 1>(stream, plan, a);
  if (a.h > kWide) return Launch<S, 1, 4, true, true, kMaxThreads, 1>(stream, plan, a);
  if (a.h > kNarrow) return Launch<S, 1, 2, true, true, kMaxThreads, 1>(stream, plan, a);
  if (several) return Launch<S, 1, 1, true, true, kNarrowThreads, 2>(stream, plan, a);
  Launch<S, 2, 1, false, true, kNarrowThreads, 2>(stream, plan, a);
}

template <class S>
GradRows<S> Raw(const AddNormGradArgs& a) {
  const int64_t rows = a.dresidual.shape[0], h = a.dresidual.shape[1];
  return {.rows = rows,
          .h = h,
          .batch = a.batch,
          .num_dy = a.dy.count,
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
  const GradPlan plan = PlanOf(raw.rows, raw.h, raw.num_dy > 1, aligned, limits);
  raw.team_size = plan.team_size;
  raw.teams = plan.teams;
  LaunchFor(stream, plan, raw, aligned);
  const ColumnPartials all{.data = raw.sums, .blocks = plan.blocks, .stride = kSums * raw.h};
  CombineColumns(stream, all, raw.h, a.mode, {a.dgain, a.dshift, a.dbias});
}

}  // namespace

int64_t CudaAddNorm::WorkspaceBytes(const AddNormGradArgs& a) const {
  return kBlocksPerSm * limits_.num_sms * kSums * a.dresidual.shape[1] * int64_t{sizeof(float)};
}

void CudaAddNorm::AddNormGrad(Stream& stream, const AddNormGradArgs& a) const {
  const int64_t rows = a.dresidual.shape[0], h = a.dresidual.shape[1];
  CHECK(a.batch > 0 && rows % a.batch == 0) << rows << " rows, batch " << a.batch;
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  CHECK_LE(h, int64_t{kMaxThreads} * 4 * kGroup);
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
