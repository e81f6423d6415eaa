// What positions contribute to attention, written once per run and read by every layer: the
// rotations of RoPE (Su et al. 2021) and the slopes of ALiBi (Press et al. 2022), in planned memory
// of the device. Legend: s sequence, r rotated channels of a head, a query heads of this rank.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "worker/memory/memory.h"
#include "worker/memory/stack_arena.h"
#include "worker/model/gpt_config.h"

namespace mt::model {

// One thread until Bind has returned, constant afterwards. Owns nothing.
class PositionTables {
 public:
  explicit PositionTables(const GptConfig& config) : config_(config) {}

  // Afterwards both tensors have their shapes; their contents come with Bind.
  void Plan(memory::MemoryPlan* plan);
  // Takes the memory and fills it; blocks until that is done.
  void Bind(const memory::Memory& memory, kernels::Device& device, kernels::Stream& stream);

  // Accumulator type [s, r]: RopeOps' table; absent unless positions are rotated.
  const kernels::Tensor& rope() const { return rope_; }
  // Accumulator type [a], of this rank's heads; absent without ALiBi.
  const kernels::Tensor& slopes() const { return slopes_; }

 private:
  void Take(memory::StackArena* arena);

  const GptConfig config_;
  memory::Block block_;
  kernels::Tensor rope_, slopes_;
};

}  // namespace mt::model
