// A microbatch where the device reads it. BatchView is what the blocks see; BatchBuffer places it
// in planned memory, BatchStaging brings it there from the loader's data::Microbatch. Legend: s
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

// Microbatches on their way to the device: a ring of pinned places, each reused once the device has
// read it, so that the host may run several microbatches ahead and keeps none of the loader's
// vectors alive. One thread.
class BatchStaging {
 public:
  // Of config: seq, micro_batch. `places` microbatches may be on their way.
  BatchStaging(const GptConfig& config, int places);

  void Plan(memory::MemoryPlan* plan);
  void Bind(const memory::Memory& memory, kernels::Device& device);
  // Packs the microbatch into the next place and copies all of it to `to` (packed_bytes) in stream
  // order, in one piece. Waits only where the device has not read what lay there before. CHECKs the
  // planned shape. `batch` is not needed afterwards.
  void Send(const data::Microbatch& batch, void* to, kernels::Device& device,
            kernels::Stream& stream);
  int64_t packed_bytes() const { return packed_bytes_; }

 private:
  struct Place {
    BatchView view;  // of host memory
    std::unique_ptr<kernels::Event> read;
  };

  const int64_t s_, b_;
  const int64_t packed_bytes_;
  memory::Block block_;
  std::vector<Place> places_;
  size_t next_ = 0;
};

// Where the device finds a microbatch. One thread. A view stays valid until the next Load.
class BatchBuffer {
 public:
  // Of config: seq, micro_batch, shard.
  explicit BatchBuffer(const GptConfig& config)
      : s_(config.seq), b_(config.micro_batch), shard_(config.shard) {}

  void Plan(memory::MemoryPlan* plan);
  // Takes the memory and writes the positions; blocks until they are there.
  void Bind(const memory::Memory& memory, kernels::Device& device, kernels::Stream& stream);
  // Brings the microbatch here in stream order, through `staging`.
  const BatchView& Load(const data::Microbatch& batch, BatchStaging* staging,
                        kernels::Device& device, kernels::Stream& stream);
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
