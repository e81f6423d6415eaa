// The memory that a rank of a job plans, by closed formulas instead of by building the model: what
// a planner enumerates and `mtctl explain memory` prints. Weights, gradients and optimizer state
// are counted as stored: heads and vocabulary split over tensor ranks, vocabulary and heads padded
// (PaddedVocab, StoredHeadDim), buckets padded to the replicas. Activations are what all slots keep
// from forward to backward (the terms of Korthikanti et al. 2022, without [s, s] matrices and
// dropout masks, which are never stored). Not counted: scratch of a running action, workspaces,
// communication buffers other than tensor_sums, data. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

using megatrain::v1::JobSpec;

// A rank's memory by kind.
struct RankMemory {
  int64_t parameters = 0;  // elements stored, with padding
  int64_t weights = 0;     // bytes, as all members below
  int64_t gradients = 0;
  int64_t optimizer = 0;  // master weights (16-bit precision) and moments
  int64_t activations = 0;
  // For training.eval.prompts: a cache of keys and values, as long as the longest prompt may be in
  // tokens, one a byte, and what is written behind it; for training.eval.decode_tokens, as long as
  // that, the longer of both; and rows of activations. On the ranks of the first replica alone.
  int64_t prompts = 0;
  // Under sequence parallelism, activations more: all tensor ranks' rows of what layers keep of
  // their norms' outputs. Kept where every rank has room, else gathered again in backward.
  int64_t gathered_inputs = 0;
  // On GPUs, where tensor ranks add up by copies (worker/comm/copies): the other ranks' terms of
  // the largest sum inside layers.
  int64_t tensor_sums = 0;
  // Host memory for a copy of what the rank saves (checkpoint.async_save), on a GPU beside all
  // else.
  int64_t save_copy = 0;

  // Of the device where that is a GPU; what a rank needs at least, without gathered inputs.
  int64_t total() const { return weights + gradients + optimizer + activations + prompts; }
};

// The memory of every rank of pipeline stage `stage`; tensor ranks and replicas are alike. slots[c]
// is the largest number of microbatches that the stage's chunk c keeps at once
// (parallel::Schedule::slots). The job is completed (CompleteJob) and resolved for its device. The
// result is within 2 % of what the engine plans.
RankMemory MemoryOf(const JobSpec& job, int stage, std::span<const int> slots);

// RankMemory::prompts of it alone, which no schedule changes.
int64_t PromptMemoryOf(const JobSpec& job, int stage);

// The memory of a job that reads a checkpoint (job_kind.h) of this completed job: weights in the
// type that is computed in, and as activations the cache of keys and values. It is as long as the
// longest prompt may be in tokens, one a byte, and what is asked for; in scores, as the positions.
RankMemory MemoryOfReader(const JobSpec& reader, const JobSpec& trained);

}  // namespace mt::spec
