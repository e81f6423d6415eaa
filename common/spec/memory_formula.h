// How much memory a rank of a job plans, by the formulas of the design and without building
// anything: what a planner enumerates and `mtctl explain memory` prints. Weights, gradients and the
// optimizer's state are counted as stored: heads and vocabulary cut over the tensor ranks, the
// vocabulary padded, heads padded (StoredHeadDim), buckets padded to the replicas. Activations are
// what is kept from forward to backward in all slots (Korthikanti et al. 2022 for the terms; no
// [s, s] matrix and no dropout mask is kept). Not counted: scratch of a running action, workspaces,
// buffers of collectives, data.
#pragma once

#include <cstdint>
#include <span>

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

using megatrain::v1::JobSpec;

struct RankMemory {
  int64_t parameters = 0;  // elements stored, padding included
  int64_t weights = 0;     // bytes, here and below
  int64_t gradients = 0;
  int64_t optimizer = 0;  // master weights (16-bit precision) and moments
  int64_t activations = 0;

  int64_t total() const { return weights + gradients + optimizer + activations; }
};

// Of any rank of pipeline stage `stage`: tensor ranks and replicas are alike. `slots`: microbatches
// that each of the stage's chunks keeps at most (schedule::Schedule::slots). The job is complete
// (CompleteJob) and resolved for its device; within 2 % of what the engine plans.
RankMemory MemoryOf(const JobSpec& job, int stage, std::span<const int> slots);

}  // namespace mt::spec
