// Position-dependent constants of attention, written once per run and read by every layer: the
// rotations of RoPE (Su et al. 2021) and the slopes of ALiBi (Press et al. 2022), in planned device
// memory. Legend: s sequence, r rotated channels of a head, a query heads of this rank.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "worker/memory/memory.h"
#include "worker/memory/stack_arena.h"
#include "worker/model/gpt_config.h"

namespace mt::model {

// Used by one thread until Bind has returned, constant afterwards. Owns no memory.
class PositionTables {
 public:
  explicit PositionTables(const GptConfig& config) : config_(config) {}

  // Reserves memory. Afterwards both tensors have their shapes; their contents come with Bind.
  void Plan(memory::MemoryPlan* plan);
  // Binds the memory and fills it; blocks until it is filled.
  void Bind(const memory::Memory& memory, kernels::Device& device, kernels::Stream& stream);

  // Accumulator type [s, r], the table of RopeOps; empty unless positions are rotated.
  const kernels::Tensor& rope() const { return rope_; }
  // Accumulator type [a], the slopes of this rank's heads; empty without ALiBi.
  const kernels::Tensor& slopes() const { return slopes_; }

 private:
  void Take(memory::StackArena* arena);

  const GptConfig config_;
  memory::Block block_;
  kernels::Tensor rope_, slopes_;
};

}  // namespace mt::model
