// A team of threads that walks through rows of the gradient of residual add + norm: its shared
// memory, and the steps of a row.
// Legend: h hidden, V groups of eight columns per thread.
#pragma once

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/norm_rope/add_norm_rows.cuh"

namespace mt::kernels::cuda {

inline constexpr int kSums = 3;  // dgain, dshift, dbias

template <class S>
struct GradRows {
  int64_t rows, h;
  const S* dy[kMaxPartials];
  int num_dy;    // 0 without a norm
  bool rounded;  // the sum of dy, to S
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

// The compile-time shape of a kernel: V; whether a team is one warp, whose lanes then have V whole
// groups each; rows in shared memory at a time including the current one (1: nothing is copied
// ahead); whether y's gradient comes as several partials.
template <int kV, bool kWarpTeam, int kStages, bool kSeveral, Access kAccess, int kThreads>
struct GradShape {
  static constexpr int V = kV;
  static constexpr bool warp_team = kWarpTeam;
  static constexpr int stages = kStages;
  static constexpr bool several = kSeveral;
  static constexpr Access access = kAccess;
  static constexpr int threads = kThreads;
  // If nothing is copied ahead, rows are wide and the gain stays in global memory.
  static constexpr bool shared_gain = kStages > 1;
  // Distance between a thread's vectors in shared memory; a constant saves address arithmetic.
  static __device__ __forceinline__ int Stride() {
    return kStages > 1 ? kThreads : static_cast<int>(blockDim.x);
  }
};

// A thread's share of the rows in shared memory, in vectors of 16 bytes: of residual_out, of the
// residual's gradient and of y's gradient, which is kept in f32 if it is a sum of partials. No
// other thread accesses them, so no barrier guards them; the vectors of different threads
// alternate, so there are no bank conflicts.
template <class S, class Z>
struct RowRing {
  static constexpr int kParts = static_cast<int>(sizeof(Stored8<S>)) / 16;
  static constexpr int kDyParts = Z::several ? 2 : kParts;
  static constexpr int kX = 0, kResidual = Z::V * kParts, kDy = 2 * Z::V * kParts;
  static constexpr int kVectors = Z::V * (2 * kParts + kDyParts);  // per thread and stage
  static constexpr int64_t kThreadBytes = int64_t{Z::stages} * kVectors * 16;

  uint4* mine;  // in shared memory, the thread's first vector

  __device__ __forceinline__ uint4* At(int stage, int vector) const {
    return mine + (stage * kVectors + vector) * Z::Stride();
  }
  __device__ __forceinline__ void Fetch(int stage, int vector, const S* from, int count) const {
    if constexpr (Z::access == Access::kVector) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        CopyAsync(At(stage, vector + part), reinterpret_cast<const uint4*>(from) + part);
      }
    } else {
      const Stored8<S> x = LoadStored<Access::kElements>(from, count);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        *At(stage, vector + part) = reinterpret_cast<const uint4*>(&x)[part];
      }
    }
  }
  template <class T>  // Stored8<S> or Float8
  __device__ __forceinline__ T Read(int stage, int vector) const {
    T out;
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(T)) / 16; ++part) {
      const uint4 x = *At(stage, vector + part);
      memcpy(reinterpret_cast<char*>(&out) + 16 * part, &x, 16);
    }
    return out;
  }
  __device__ __forceinline__ void WriteDy(int stage, int j, const Float8& dy) const {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint4 x;
      memcpy(&x, dy.v + 4 * part, 16);
      *At(stage, kDy + j * kDyParts + part) = x;
    }
  }
};

// Column sums of a thread: dgain, dshift, dbias.
template <int V>
struct Sums {
  Float8 v[kSums][V];
};

// The rows of a team: every step-th row from `first` on, as long as there is one for every team of
// the grid. The remaining rows are divided equally among the blocks, so that no SM idles in the
// last turn.
struct TeamRows {
  int first, step;
  int stop;   // all teams count the same number of turns, in steps, up to here
  int whole;  // rows of the turns in which every team has one
  int shift;  // offset of the rows of the last turn
  int end;

  __device__ __forceinline__ TeamRows(int rows, int teams, int team) {
    const auto blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    first = block * teams + team;
    step = blocks * teams;
    whole = rows / step * step;
    const int left = rows - whole, begin = left * block / blocks;
    stop = whole + (left > 0 ? step : 0);
    shift = begin - block * teams;
    end = whole + left * (block + 1) / blocks;
  }
  // Returns the row of a turn, first + turn * step, or -1 for none.
  __device__ __forceinline__ int Of(int row) const {
    const int place = row < whole ? row : row + shift;
    return place < end ? place : -1;
  }
};

// Per-row scalars, loaded one turn ahead.
struct RowScalars {
  float mean = 0, rstd = 0;
  MaskRow mask;
};

// Returns the sums of two values over a warp, in every lane: each half of the lanes reduces one of
// them.
__device__ __forceinline__ float2 WarpSum2(float2 x) {
  const bool upper = threadIdx.x % kWarp >= kWarp / 2;
  float kept = upper ? x.y : x.x;
  kept += __shfl_xor_sync(kAllLanes, upper ? x.x : x.y, kWarp / 2);
#pragma unroll
  for (int offset = kWarp / 4; offset > 0; offset /= 2) {
    kept += __shfl_xor_sync(kAllLanes, kept, offset);
  }
  return {__shfl_sync(kAllLanes, kept, 0), __shfl_sync(kAllLanes, kept, kWarp / 2)};
}

// The gain plus `plus` in shared memory: first the lower halves of all groups, then the upper
// halves, so that neighbouring threads read neighbouring vectors.
__device__ __forceinline__ int GainGroups(int64_t h) { return static_cast<int>(h) / kGroup; }
template <class S>
__device__ __forceinline__ void FillGain(const GradRows<S>& a, float* gain) {
  for (int c = static_cast<int>(threadIdx.x); c < a.h; c += static_cast<int>(blockDim.x)) {
    const int vector = c % kGroup / 4 * GainGroups(a.h) + c / kGroup;
    gain[vector * 4 + c % 4] = Widen(a.gain[c]) + a.plus;
  }
}

// A team's column sums in shared memory are [kSums, kGroup, JoinStride(h)]; the stride avoids bank
// conflicts both for threads that write groups and for threads that read columns.
__host__ __device__ constexpr int64_t JoinStride(int64_t h) {
  const int64_t groups = (h + kGroup - 1) / kGroup;
  return (groups + 3) / 8 * 8 + 4;
}

template <class S, class Z>
struct GradTeam {
  static constexpr int V = Z::V;
  using Ring = RowRing<S, Z>;
  const GradRows<S>& a;
  const int team, thread;  // index in the block, index in the team
  const Ring ring;
  const float4* gain;                       // in shared memory, see FillGain
  float2 (*warp_sums)[Z::threads / kWarp];  // alternates between turns, so a turn has one barrier

  __device__ __forceinline__ int Column(int j) const {
    return (j * (Z::warp_team ? kWarp : a.team_size) + thread) * kGroup;
  }
  __device__ __forceinline__ int Count(int j) const {
    if constexpr (Z::warp_team) return kGroup;
    return max(0, min(static_cast<int>(a.h) - Column(j), kGroup));
  }

  __device__ __forceinline__ void Fetch(int row, int stage) const {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int count = Count(j);
      if (count == 0) continue;
      const int64_t at = row * a.h + Column(j);
      if (a.num_dy > 0) {
        ring.Fetch(stage, Ring::kX + j * Ring::kParts, a.residual_out + at, count);
        ring.Fetch(stage, Ring::kDy + j * Ring::kDyParts, a.dy[0] + at, count);
      }
      if (a.dresidual_in != nullptr) {
        ring.Fetch(stage, Ring::kResidual + j * Ring::kParts, a.dresidual_in + at, count);
      }
    }
  }

  __device__ __forceinline__ RowScalars Scalars(int row) const {
    RowScalars out;
    if (a.num_dy > 0) {
      if (a.mean != nullptr) out.mean = a.mean[row];
      out.rstd = a.rstd[row];
    }
    if (a.dbranch != nullptr) out.mask = MaskRowOf(a.dropout, row);
    return out;
  }

  __device__ __forceinline__ Float8 X(int stage, int j) const {
    return Widen(ring.template Read<Stored8<S>>(stage, Ring::kX + j * Ring::kParts));
  }
  __device__ __forceinline__ Float8 Dy(int stage, int j) const {
    if constexpr (Z::several) {
      return ring.template Read<Float8>(stage, Ring::kDy + j * Ring::kDyParts);
    } else {
      return Widen(ring.template Read<Stored8<S>>(stage, Ring::kDy + j * Ring::kDyParts));
    }
  }
  __device__ __forceinline__ Float8 Gain(int j) const {
    Float8 out;
    if constexpr (Z::shared_gain) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 x = gain[half * GainGroups(a.h) + Column(j) / kGroup];
        out.v[4 * half] = x.x, out.v[4 * half + 1] = x.y;
        out.v[4 * half + 2] = x.z, out.v[4 * half + 3] = x.w;
      }
    } else {
      out = Load<Z::access>(a.gain + Column(j), Count(j));
#pragma unroll
      for (int i = 0; i < kGroup; ++i) out.v[i] += a.plus;
    }
    return out;
  }

  // Adds the other partials to the first one, which is in the ring already.
  __device__ __forceinline__ void SumPartials(int row, int stage, int j) const {
    Float8 dy = Widen(ring.template Read<Stored8<S>>(stage, Ring::kDy + j * Ring::kDyParts));
    for (int p = 1; p < a.num_dy; ++p) {
      const Float8 more = Load<Z::access>(a.dy[p] + row * a.h + Column(j), Count(j));
#pragma unroll
      for (int i = 0; i < kGroup; ++i) dy.v[i] += more.v[i];
    }
    if (a.rounded) dy = Widen(Narrow<S>(dy));
    ring.WriteDy(stage, j, dy);
  }

  // Adds the row to dgain and dshift; returns the thread's share of the row's sums of g = dy gain
  // and of g xhat.
  __device__ __forceinline__ float2 GainGrad(int row, int stage, const RowScalars& scalars,
                                             Sums<V>* sums) const {
    const float offset = -scalars.mean * scalars.rstd;
    float2 out{0, 0};
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if (Count(j) == 0) continue;
      if constexpr (Z::several) SumPartials(row, stage, j);
      const Float8 x = X(stage, j), dy = Dy(stage, j), weight = Gain(j);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const float xhat = fmaf(x.v[i], scalars.rstd, offset);
        sums->v[0][j].v[i] += dy.v[i] * xhat;
        sums->v[1][j].v[i] += dy.v[i];
        const float g = dy.v[i] * weight.v[i];
        out.x += g;
        out.y += g * xhat;
      }
    }
    return out;
  }

  // Returns the sums over the team, the same in every thread. All threads of the block call it.
  __device__ __forceinline__ float2 TeamSum(float2 x, int turn) const {
    x = WarpSum2(x);
    if constexpr (Z::warp_team) return x;
    float2* const all = warp_sums[turn % 2];
    if (threadIdx.x % kWarp == 0) all[threadIdx.x / kWarp] = x;
    __syncthreads();
    const int warps = a.team_size / kWarp;
    float2 total{0, 0};
    for (int w = team * warps; w < (team + 1) * warps; ++w) {
      total.x += all[w].x;
      total.y += all[w].y;
    }
    return total;
  }

  // Writes dresidual = rstd (g - mean(g) - xhat mean(g xhat)) + dresidual_in, then the branch's
  // gradient.
  __device__ __forceinline__ void Finish(int row, int stage, const RowScalars& scalars,
                                         float2 row_sums, Sums<V>* sums) const {
    const float per_column = 1.0F / static_cast<float>(a.h);
    // The norm's part as a function of x: slope x + offset.
    const float slope = -scalars.rstd * scalars.rstd * row_sums.y * per_column;
    const float mean_g = a.mean != nullptr ? row_sums.x * per_column : 0.0F;
    const float offset = -scalars.rstd * mean_g - slope * scalars.mean;
    Philox4 mask[V] = {};
    if (a.dbranch != nullptr) {
#pragma unroll
      for (int j = 0; j < V; ++j) mask[j] = MaskBits(a.dropout, scalars.mask, Column(j));
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int count = Count(j);
      if (count == 0) continue;
      Float8 d{};
      if (a.dresidual_in != nullptr) {
        d = Widen(ring.template Read<Stored8<S>>(stage, Ring::kResidual + j * Ring::kParts));
      }
      if (a.num_dy > 0) {
        const Float8 x = X(stage, j), dy = Dy(stage, j), weight = Gain(j);
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          const float rest = fmaf(slope, x.v[i], d.v[i] + offset);
          d.v[i] = fmaf(scalars.rstd, dy.v[i] * weight.v[i], rest);
        }
      }
      const int64_t at = row * a.h + Column(j);
      Store<Z::access>(d, a.dresidual + at, count);
      if (a.dbranch != nullptr) {
        Drop(mask[j], a.dropout.threshold, a.dropout.scale, &d);
        Store<Z::access>(d, a.dbranch + at, count);
      }
#pragma unroll
      for (int i = 0; i < kGroup; ++i) sums->v[2][j].v[i] += d.v[i];
    }
  }

  // Adds up the block's teams in order, through `joined` [teams, kSums, kGroup, JoinStride], and
  // writes the sums out.
  __device__ __forceinline__ void JoinTeams(const Sums<V>& sums, float* joined) const {
    const auto stride = static_cast<int>(JoinStride(a.h));
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        if (Count(j) == 0) continue;
        float* const to = joined + (team * kSums + k) * kGroup * stride + Column(j) / kGroup;
#pragma unroll
        for (int i = 0; i < kGroup; ++i) to[i * stride] = sums.v[k][j].v[i];
      }
    }
    __syncthreads();
    const int h = static_cast<int>(a.h);
    float* const out = a.sums + int64_t{blockIdx.x} * kSums * h;
    for (int c = static_cast<int>(threadIdx.x); c < h; c += static_cast<int>(blockDim.x)) {
      const float* from = joined + c % kGroup * stride + c / kGroup;
      float total[kSums] = {};
#pragma unroll 4
      for (int t = 0; t < a.teams; ++t, from += kSums * kGroup * stride) {
#pragma unroll
        for (int k = 0; k < kSums; ++k) total[k] += from[k * kGroup * stride];
      }
#pragma unroll
      for (int k = 0; k < kSums; ++k) out[k * h + c] = total[k];
    }
  }
};

}  // namespace mt::kernels::cuda
