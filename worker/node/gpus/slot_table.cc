// What the coordinator learns of a GPU is what the probe found at the start.
#include "worker/node/gpus/slot_table.h"

#include "megatrain/v1/types.pb.h"

namespace mt::node {

std::string SlotTable::GpuOf(int slot) const {
  return IsGpu(slot) ? offer_.gpus[static_cast<size_t>(slot)].device.uuid : "";
}

std::string SlotTable::CpusOf(int slot) const {
  return IsGpu(slot) ? offer_.gpus[static_cast<size_t>(slot)].cpus : "";
}

void SlotTable::Describe(int slot, megatrain::v1::Slot* out) const {
  out->set_index(slot);
  out->set_device(IsGpu(slot) ? megatrain::v1::GPU : megatrain::v1::CPU_SLOT);
  if (!IsGpu(slot)) return;
  const GpuDevice& device = offer_.gpus[static_cast<size_t>(slot)].device;
  auto& gpu = *out->mutable_gpu();
  gpu.set_uuid(device.uuid);
  gpu.set_name(device.name);
  gpu.set_memory_bytes(device.memory_bytes);
  gpu.set_compute_capability(device.compute_capability);
  gpu.set_pci_bus_id(device.pci_bus_id);
  gpu.set_numa_node(device.numa_node);
  for (const std::string& peer : device.nvlink_peers) gpu.add_nvlink_peers(peer);
  gpu.set_driver_version(offer_.driver_version);
  gpu.set_power_limit_watts(device.power_limit_watts);
}

}  // namespace mt::node
