// The norm of q and k heads with the rotation behind it, where heads are whole groups of eight
// channels: a team of lanes has a head, a lane eight channels of it, and pairs that are turned
// together meet by shuffles. Legend: as in kernels/ops/rope.h.
#pragma once

#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mt::kernels::cuda {

// A lane's place in its head.
struct TeamLane {
  int lanes;          // of a team: a power of two, at least d / 8
  int group;          // which eight channels
  bool exists;        // whether the head has them
  int partner;        // lane in the team with the other half of the pairs
  bool first, turns;  // whether this lane has first(pair), whether it is rotated at all

  __device__ TeamLane(int lanes_of_team, int d, int r) : lanes(lanes_of_team) {
    group = static_cast<int>(threadIdx.x) % lanes;
    exists = group < d / kGroup;
    const int half = r / 2 / kGroup;
    turns = group < 2 * half;
    first = group < half;
    partner = !turns ? group : first ? group + half : group - half;
  }
};

__device__ __forceinline__ float TeamSum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

// Turns a lane's channels by the table's row; `sign` -1 turns back. All lanes of the warp call it.
__device__ __forceinline__ void TurnTeam(const TeamLane& lane, const float* cos, int half,
                                         float sign, Float8* x) {
  Float8 other;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    other.v[i] = __shfl_sync(kAllLanes, x->v[i], lane.partner, lane.lanes);
  }
  if (!lane.turns || !lane.exists) return;
  const int pair = (lane.first ? lane.group : lane.partner) * kGroup;
  const Float8 c = Load<Access::kVector>(cos + pair, kGroup);
  const Float8 s = Load<Access::kVector>(cos + half + pair, kGroup);
  const float toward = lane.first ? -sign : sign;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) x->v[i] = x->v[i] * c.v[i] + toward * s.v[i] * other.v[i];
}

}  // namespace mt::kernels::cuda
