// Word embedding: a gather forward, a segmented sum backward. Legend: T tokens of a microbatch in
// [s, b] order (row = s b), v rows of the (local) table, h hidden, S positions.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

struct EmbeddingGatherArgs {
  Tensor tokens;  // i32 [T]
  Tensor table;   // [v, h]
  int64_t first_row =
      0;  // global id of the table's row 0; ids outside [first_row, first_row + v) give a zero row
  Tensor out;  // [T, h]
};

struct EmbeddingScatterArgs {
  Tensor dy;     // [T, h]
  Tensor order;  // i32 [T]: rows of dy, sorted by token id, ties in rising row order (made by the
                 // loader)
  // Segments of `order`: token i32 [n] and start i32 [n + 1]. A segment whose token lies outside
  // the table is left out.
  Tensor segment_token;
  Tensor segment_start;
  int64_t num_segments = 0;  // n; with `count` the most that n can be
  // i32 [1] in device memory: n, for calls that are recorded and must not change with the
  // microbatch. Absent: num_segments.
  Tensor count;
  int64_t first_row = 0;
  Tensor dtable;      // accumulator type [v, h]; added to (the caller zeroes it, or the head has
                      // written it)
  Tensor positions;   // i32 [s]; absent without learned positions
  int64_t batch = 0;  // b: row = s_index * b + b_index
  Tensor dposition;   // accumulator type [S, h]; added to; absent without learned positions
};

class EmbeddingOps {
 public:
  virtual ~EmbeddingOps() = default;
  virtual void Gather(Stream& stream, const EmbeddingGatherArgs& args) const = 0;
  // Sums in the order of `order` and of rising rows: the same bits in every run.
  virtual void ScatterGrad(Stream& stream, const EmbeddingScatterArgs& args) const = 0;
};

}  // namespace mt::kernels
