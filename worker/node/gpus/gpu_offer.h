// Which GPUs a worker offers: those that its probe has found and its operator wants, and why others
// are not. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/node/probe/inventory.h"

namespace mt::node {

inline constexpr char kAllGpus[] = "all";
inline constexpr char kNoGpus[] = "none";

struct GpuSlot {
  GpuDevice device;
  std::string cpus;  // where its rank runs, as "0-31,64-95"; empty: anywhere
};

struct GpuOffer {
  std::vector<GpuSlot> gpus;  // in the order of their PCI bus
  std::string driver_version;
  // Why there are fewer than there might be: a driver or a GPU that does not work, a wanted one
  // that is not here. Empty: nothing is wrong; a host without a driver is in order.
  std::string problem;
};

// GPUs are of use only where ranks find the CUDA module (`module`: gpu::FindCudaModule): found ones
// without it become FailedPrecondition, with what to do.
StatusOr<GpuInventory> NeedModule(StatusOr<GpuInventory> found, const Status& module);

// --gpus: "all", "none", or UUIDs separated by commas. InvalidArgument: neither.
Status CheckGpusOption(const std::string& wanted);

// `found`: of the probe (GpuProbe); not looked at with "none". `cpus_of` tells the cores of a NUMA
// node. `wanted` is checked.
GpuOffer OfferGpus(const std::string& wanted, const StatusOr<GpuInventory>& found,
                   const std::function<std::string(int numa_node)>& cpus_of);

// CPU slots of a worker that was not told how many: none beside GPUs, or where GPUs should be but
// do not work; else one per core.
int DefaultCpuSlots(const GpuOffer& offer, int cores);

}  // namespace mt::node
