// Decides which GPUs a worker offers, namely those that its probe has found, that work and that the
// operator wants (--gpus), and says why others are not offered. Pure.
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
  std::string cpus;  // cores for its rank, as "0-31,64-95"; empty: any
};

struct GpuOffer {
  std::vector<GpuSlot> gpus;  // in the order of PCI bus ids
  std::string driver_version;
  // Why GPUs are missing: the driver or a GPU does not work, a wanted GPU is not here. Empty:
  // nothing is wrong; a host without a driver is in order.
  std::string problem;
};

// Returns `found`, or kFailedPrecondition with what to do if GPUs were found but ranks cannot load
// the CUDA module (`module`: the status of gpu::FindCudaModule).
StatusOr<GpuInventory> NeedModule(StatusOr<GpuInventory> found, const Status& module);

// Checks --gpus: "all", "none", or UUIDs separated by commas. kInvalidArgument otherwise.
Status CheckGpusOption(const std::string& wanted);

// `wanted`: --gpus, checked. `found`: the result of the probe (GpuProbe), ignored for "none".
// `cpus_of`: the cores of a NUMA node, see CpusOfNode.
GpuOffer OfferGpus(const std::string& wanted, const StatusOr<GpuInventory>& found,
                   const std::function<std::string(int numa_node)>& cpus_of);

// The number of CPU slots without --cpu-slots: none if the worker offers GPUs or has a problem with
// them, otherwise one per core.
int DefaultCpuSlots(const GpuOffer& offer, int cores);

}  // namespace mt::node
