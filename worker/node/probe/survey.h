// Collects this host's GPUs from NVML and sysfs, for mt-gpu-probe. Blocks for as long as the driver
// takes.
#pragma once

#include <string>
#include <vector>

#include "worker/node/probe/inventory.h"

namespace mt::nvml {
class Library;
}

namespace mt::node {

// The indices of the GPUs that a value of CUDA_VISIBLE_DEVICES makes visible, ascending. `uuids`
// are those of the host's GPUs in the order of their PCI bus ids; empty: unknown. The value is
// interpreted as the CUDA runtime does under CUDA_DEVICE_ORDER=PCI_BUS_ID, which ranks run with:
// ordinals, or UUIDs and their unambiguous prefixes; the first entry that is neither, or is
// repeated, ends the list. Null: all GPUs.
std::vector<int> VisibleGpus(const char* setting, const std::vector<std::string>& uuids);

// Converts NVML's bus id, "00000000:18:00.0", to that of sysfs, "0000:18:00.0".
std::string SysfsBusId(const std::string& bus_id);
// The NUMA node of a PCI device; -1 if it is not reported or the host has only one.
int NumaNodeOf(const std::string& sysfs_bus_id, const std::string& sysfs_root = "/sys");

// Surveys all visible GPUs. A GPU that does not answer is listed with its error and without the
// missing values.
GpuInventory SurveyGpus(const nvml::Library& library, const char* visible_devices,
                        const std::string& sysfs_root = "/sys");

}  // namespace mt::node
