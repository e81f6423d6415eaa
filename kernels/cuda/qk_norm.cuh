// The norm of q and k heads with the rotation behind it, where heads are whole groups of eight
// channels: a team of lanes has a head, a lane eight channels of it, and pairs that are turned
// together meet by shuffles. Legend: as in kernels/ops/rope.h.
#pragma once

#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mt::kernels::cuda {

// A lane's place in its head; kLanes of a team: a power of two, at least d / 8.
template <int kLanes>
struct TeamLane {
  int group;          // which eight channels
  bool exists;        // whether the head has them
  int partner;        // lane in the team with the other half of the pairs
  bool first, turns;  // whether this lane has first(pair), whether it is rotated at all

  __device__ TeamLane(int d, int r) {
    group = static_cast<int>(threadIdx.x) % kLanes;
    exists = group < d / kGroup;
    const int half = r / 2 / kGroup;
    turns = group < 2 * half;
    first = group < half;
    partner = !turns ? group : first ? group + half : group - half;
  }
};

template <int kLanes>
__device__ __forceinline__ float TeamSum(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, offset);
  }
  return x;
}

// A lane's part of the table's row.
struct Angles {
  Float8 cos, sin;
};
template <int kLanes>
__device__ __forceinline__ Angles LoadAngles(const TeamLane<kLanes>& lane, const float* cos,
                                             int half) {
  if (!lane.turns || !lane.exists) return {};
  const int pair = (lane.first ? lane.group : lane.partner) * kGroup;
  return {Load<Access::kVector>(cos + pair, kGroup),
          Load<Access::kVector>(cos + half + pair, kGroup)};
}

// Turns a lane's channels; `sign` -1 turns back. All lanes of the warp call it.
template <int kLanes>
__device__ __forceinline__ void TurnTeam(const TeamLane<kLanes>& lane, const Angles& angles,
                                         float sign, Float8* x) {
  Float8 other;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    other.v[i] = __shfl_sync(kAllLanes, x->v[i], lane.partner, kLanes);
  }
  if (!lane.turns || !lane.exists) return;
  const float toward = lane.first ? -sign : sign;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    x->v[i] = x->v[i] * angles.cos.v[i] + toward * angles.sin.v[i] * other.v[i];
  }
}

}  // namespace mt::kernels::cuda
