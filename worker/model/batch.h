// A microbatch where the device reads it. BatchView is what the blocks see; BatchBuffer places it
// in planned memory and fills it from the loader's data::Microbatch. Legend: s sequence, b samples,
// T = s b tokens in [s, b] order, n distinct tokens, R rows that this rank holds between matrix
// products.
#pragma once

#include <cstdint>

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "worker/data/microbatch.h"
#include "worker/memory/memory.h"
#include "worker/memory/stack_arena.h"
#include "worker/model/gpt_config.h"

namespace mt::model {

struct BatchView {
  int64_t s = 0;
  int64_t b = 0;
  kernels::Tensor tokens;         // i32 [T]
  kernels::Tensor labels;         // i32 [T]
  kernels::Tensor weights;        // f32 [T]
  kernels::Tensor samples;        // i64 [b] running sample numbers
  kernels::Tensor positions;      // i32 [s] absolute positions: 0 .. s-1
  kernels::Tensor row_positions;  // i32 [R / b]: of this rank's rows between matrix products
  kernels::Tensor order;          // i32 [T] rows sorted by token
  kernels::Tensor segment_token;  // i32 [T], the first n used
  kernels::Tensor segment_start;  // i32 [T + 1], the first n + 1 used
  kernels::Tensor segment_count;  // i32 [1]: n
};

// One thread. A view stays valid until the next Load.
class BatchBuffer {
 public:
  // Of config: seq, micro_batch, shard.
  explicit BatchBuffer(const GptConfig& config)
      : s_(config.seq), b_(config.micro_batch), shard_(config.shard) {}

  void Plan(memory::MemoryPlan* plan);
  // Takes the memory and writes the positions; blocks until they are there.
  void Bind(const memory::Memory& memory, kernels::Device& device, kernels::Stream& stream);
  // Copies in stream order; CHECKs the planned shape. The host vectors must live until the stream
  // has passed the copy.
  const BatchView& Load(const data::Microbatch& batch, kernels::Device& device,
                        kernels::Stream& stream);
  // Shapes and fixed contents; data of a microbatch only after Load.
  const BatchView& view() const { return view_; }

 private:
  void Take(memory::StackArena* arena);

  int64_t s_;
  int64_t b_;
  TensorShard shard_;
  memory::Block block_;
  BatchView view_;
};

}  // namespace mt::model
