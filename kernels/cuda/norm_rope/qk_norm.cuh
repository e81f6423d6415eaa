// QK norm followed by the rotation, for heads that are whole groups of eight channels: a team of
// lanes handles a head, each lane eight channels of it, and the two halves of rotated pairs are
// exchanged by shuffles.
// Legend: as in kernels/ops/rope.h.
#pragma once

#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"

namespace mt::kernels::cuda {

// A lane's role in its team; a team has kLanes lanes, a power of two that is at least d / 8.
template <int kLanes>
struct TeamLane {
  int group;    // index of the lane's eight channels
  bool exists;  // whether the head has that many channels
  int partner;  // lane of the team that has the other half of the pairs
  bool first,
      turns;  // whether this lane has the first half of the pairs; whether it is rotated at all

  __device__ TeamLane(int d, int r) {
    group = static_cast<int>(threadIdx.x) % kLanes;
    exists = group < d / kGroup;
    const int half = r / 2 / kGroup;
    turns = group < 2 * half;
    first = group < half;
    partner = !turns ? group : first ? group + half : group - half;
  }
};

// Returns the team's sum, the same in all of its lanes.
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

// Rotates a lane's channels; `sign` -1 rotates back. All lanes of the warp call it.
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
