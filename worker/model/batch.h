// A microbatch in device memory. BatchView is what the blocks see, BatchBuffer owns its place in
// planned memory, and BatchStaging copies it there from the loader's data::Microbatch. Legend: s
// sequence, b samples, T = s b tokens in [s, b] order, n distinct tokens, R rows that this rank
// holds between matrix products.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "worker/data/microbatch.h"
#include "worker/memory/memory.h"
#include "worker/memory/stack_arena.h"
#include "worker/model/gpt_config.h"

namespace mt::model {

// Views of one microbatch; see data::Microbatch for the meaning of the fields.
struct BatchView {
  int64_t s = 0;
  int64_t b = 0;
  kernels::Tensor tokens;         // i32 [T]
  kernels::Tensor labels;         // i32 [T]
  kernels::Tensor weights;        // f32 [T]
  kernels::Tensor samples;        // i64 [b] sample numbers
  kernels::Tensor positions;      // i32 [s] absolute positions, 0 .. s-1
  kernels::Tensor row_positions;  // i32 [R / b] positions of this rank's rows
  // What the tables of learned positions and of rotations are read at: `positions` and
  // `row_positions`, or i32 [T] and [R], each token's own, where they restart at documents.
  kernels::Tensor table_positions;
  kernels::Tensor row_table_positions;
  kernels::Tensor order;          // i32 [T] rows, sorted by token
  kernels::Tensor segment_token;  // i32 [T], the first n are used
  kernels::Tensor segment_start;  // i32 [T + 1], the first n + 1 are used
  kernels::Tensor segment_count;  // i32 [1] n
  // The same of table_positions, m distinct ones, where learned positions restart; else empty.
  kernels::Tensor position_order;  // i32 [T]
  kernels::Tensor position_value;  // i32 [s], the first m are used
  kernels::Tensor position_start;  // i32 [s + 1], the first m + 1 are used
  kernels::Tensor position_count;  // i32 [1] m
};

// What a microbatch of this network holds.
struct BatchShape {
  explicit BatchShape(const GptConfig& config)
      : s(config.seq),
        b(config.micro_batch),
        positions(config.reset_positions),
        position_order(config.sorts_positions()) {}
  int64_t tokens() const { return s * b; }

  int64_t s, b;
  bool positions;       // of each token
  bool position_order;  // sorted
};

// A ring of pinned buffers through which microbatches are copied to the device. A buffer is reused
// once the device has read it, so the host can run several microbatches ahead without keeping the
// loader's vectors. Used by one thread.
class BatchStaging {
 public:
  // Uses what BatchShape takes of the config. `places` (> 0): number of copies that may be in
  // flight.
  BatchStaging(const GptConfig& config, int places);

  void Plan(memory::MemoryPlan* plan);
  // Binds the buffers reserved by Plan and creates their CUDA events.
  void Bind(const memory::Memory& memory, kernels::Device& device);
  // Packs the microbatch into the next buffer and enqueues one copy of packed_bytes() to `to`.
  // Blocks only if the device has not read the buffer's previous content. CHECKs the planned shape.
  // `batch` is not needed after the call.
  void Send(const data::Microbatch& batch, void* to, kernels::Device& device,
            kernels::Stream& stream);
  int64_t packed_bytes() const { return packed_bytes_; }

 private:
  struct Place {
    BatchView view;                        // in pinned host memory
    std::unique_ptr<kernels::Event> read;  // recorded behind its last copy
  };

  const BatchShape shape_;
  const int64_t packed_bytes_;
  memory::Block block_;
  std::vector<Place> places_;
  size_t next_ = 0;
};

// One microbatch's place in device memory. Used by one thread. A view is valid until the next Load.
class BatchBuffer {
 public:
  // Uses the shard of the config and what BatchShape takes of it.
  explicit BatchBuffer(const GptConfig& config) : shape_(config), shard_(config.shard) {}

  void Plan(memory::MemoryPlan* plan);
  // Binds the memory reserved by Plan and writes the positions; blocks until they are written.
  void Bind(const memory::Memory& memory, kernels::Device& device, kernels::Stream& stream);
  // Copies the microbatch here in stream order, through `staging`.
  const BatchView& Load(const data::Microbatch& batch, BatchStaging* staging,
                        kernels::Device& device, kernels::Stream& stream);
  // Shapes and positions are valid after Bind, the microbatch's data after Load.
  const BatchView& view() const { return view_; }

 private:
  void Take(memory::StackArena* arena);
  // This rank's part of positions of the sequence or of its tokens.
  kernels::Tensor RowsOf(const kernels::Tensor& positions) const;

  BatchShape shape_;
  TensorShard shard_;
  memory::Block block_;
  BatchView view_;
};

}  // namespace mt::model
