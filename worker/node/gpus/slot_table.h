// The slots of this node: GPUs first, then CPU slots; fixed for the agent's life. Pure.
#pragma once

#include <string>
#include <utility>

#include "worker/node/gpus/gpu_offer.h"

namespace megatrain::v1 {
class Slot;
}

namespace mt::node {

class SlotTable {
 public:
  SlotTable(GpuOffer offer, int cpu_slots) : offer_(std::move(offer)), cpu_slots_(cpu_slots) {}

  int size() const { return num_gpus() + cpu_slots_; }
  int num_gpus() const { return static_cast<int>(offer_.gpus.size()); }
  const GpuOffer& offer() const { return offer_; }
  bool Has(int slot) const { return slot >= 0 && slot < size(); }
  bool IsGpu(int slot) const { return slot >= 0 && slot < num_gpus(); }
  // "" of a CPU slot.
  std::string GpuOf(int slot) const;
  std::string CpusOf(int slot) const;

  // Index, device and the GPU's facts.
  void Describe(int slot, megatrain::v1::Slot* out) const;

 private:
  const GpuOffer offer_;
  const int cpu_slots_;
};

}  // namespace mt::node
