// Word embedding: a gather forward, a segmented sum backward. Under tensor parallelism each rank
// has a range of the vocabulary's rows (Megatron: VocabParallelEmbedding), and the caller sums the
// ranks' outputs.
// Legend: T tokens of a microbatch in [s, b] order (row = s_index * b + b_index), v rows of the
// local table, h hidden size, S positions of the position table.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

// out[t] = table[tokens[t] - first_row], or zero where the token is not in this rank's part of the
// table.
struct EmbeddingGatherArgs {
  Tensor tokens;  // i32 [T]
  Tensor table;   // [v, h], same dtype as out
  // Global token id of the table's row 0. Ids outside [first_row, first_row + v) give a zero row.
  int64_t first_row = 0;
  Tensor out;  // [T, h]
};

// Adds dy to the gradients of the word embedding and of the position embedding. The data loader
// sorts the tokens on the host, so that no atomics are needed and the sums have a fixed order.
// Positions that each row has of its own, since they restart at documents, it sorts alike: the
// gradient of their table is a call with that table as dtable and positions as tokens.
struct EmbeddingScatterArgs {
  Tensor dy;  // [T, h]
  // i32 [T]: rows of dy sorted by token id, ties in ascending row order.
  Tensor order;
  // Runs of equal tokens in `order`: token id i32 [n], and first index i32 [n + 1]. A segment whose
  // token is not in this rank's part of the table is skipped.
  Tensor segment_token;
  Tensor segment_start;
  int64_t num_segments = 0;  // n; with `count` an upper bound of n
  // i32 [1] in device memory: n, for calls that are recorded into a CUDA graph, whose arguments
  // must not change from microbatch to microbatch. Absent: n is num_segments.
  Tensor count;
  int64_t first_row = 0;
  // Accumulator type [v, h]; added to, never overwritten (the caller zeroes it, or with tied
  // weights the output head has written it).
  Tensor dtable;
  // i32 [s], rows of the position table, equal for all samples; absent without learned positions.
  Tensor positions;
  int64_t batch = 0;  // b: row = s_index * b + b_index
  Tensor dposition;   // accumulator type [S, h]; added to; absent without learned positions
};

// Both calls enqueue work on `stream` and return; they abort (CHECK) on inconsistent shapes.
class EmbeddingOps {
 public:
  virtual ~EmbeddingOps() = default;
  virtual void Gather(Stream& stream, const EmbeddingGatherArgs& args) const = 0;
  // Adds in the order of `order` and of ascending rows: equal calls give equal bits.
  virtual void ScatterGrad(Stream& stream, const EmbeddingScatterArgs& args) const = 0;
};

}  // namespace mt::kernels
