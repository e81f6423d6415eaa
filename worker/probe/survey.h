// Asks the driver for this host's GPUs, for mt-gpu-probe. Blocking, for as long as the driver
// takes.
#pragma once

#include <string>
#include <vector>

#include "worker/probe/inventory.h"

namespace mt::nvml {
class Library;
}

namespace mt::probe {

// Which of `uuids` (of the host's GPUs in the order of their PCI bus; empty: unknown) a value of
// CUDA_VISIBLE_DEVICES lets through, as the CUDA runtime reads it under CUDA_DEVICE_ORDER=
// PCI_BUS_ID, which ranks run under: ordinals, or UUIDs and their unambiguous beginnings; from the
// first entry on that is neither, or comes twice, nothing counts. Null: all. Rising.
std::vector<int> VisibleGpus(const char* setting, const std::vector<std::string>& uuids);

// "0000:18:00.0", as sysfs has it, of NVML's "00000000:18:00.0".
std::string SysfsBusId(const std::string& bus_id);
// The node of the host's memory that the device hangs on; -1: not told, or only one.
int NumaNodeOf(const std::string& sysfs_bus_id, const std::string& sysfs_root = "/sys");

// A GPU that does not answer is listed with its error, and without what it did not tell.
Inventory Survey(const nvml::Library& library, const char* visible_devices,
                 const std::string& sysfs_root = "/sys");

}  // namespace mt::probe
