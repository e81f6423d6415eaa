// The slots of this node, numbered from 0: GPUs in the order of the offer, then CPU slots. Fixed
// for the agent's life. Pure; thread-safe.
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
  // UUID of the slot's GPU, and the cores beside it ("0-31,64-95"; "": any). "" for a CPU slot.
  std::string GpuOf(int slot) const;
  std::string CpusOf(int slot) const;

  // Fills in index, device and the facts of the GPU.
  void Describe(int slot, megatrain::v1::Slot* out) const;

 private:
  const GpuOffer offer_;
  const int cpu_slots_;
};

}  // namespace mt::node
