// The GPUs that mt-gpu-probe finds on a node, and the JSON document in which it reports them
// (README.md). The probe writes it and the worker agent reads it; both directions are here. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::node {

// One GPU. Numbers that the driver does not report are 0.
struct GpuDevice {
  int index = 0;                   // among all GPUs of the host, ordered by PCI bus id
  std::string uuid;                // "GPU-8c5c3b0e-..."; empty if the driver does not report it
  std::string name;                // "NVIDIA H200"
  int64_t memory_bytes = 0;        // total
  int64_t free_bytes = 0;          // at the time of the survey
  std::string compute_capability;  // "9.0"
  std::string pci_bus_id;          // "0000:18:00.0", as in sysfs
  int numa_node = -1;              // -1: unknown
  std::vector<std::string> nvlink_peers;  // UUIDs of GPUs connected by NVLink
  double power_limit_watts = 0;
  std::string error;  // why the GPU cannot be used; empty: usable
};

// The whole document.
struct GpuInventory {
  std::string driver_version;      // "580.82.07"
  std::string error;               // why there are no devices; empty with exit code 0
  std::vector<GpuDevice> devices;  // those visible under CUDA_VISIBLE_DEVICES
};

// Exit codes of mt-gpu-probe.
enum ProbeExit : int {
  kProbeOk = 0,  // the driver answered; there may be no GPU
  kProbeBadArguments = 2,
  kProbeNoDriver = 3,     // no driver is installed or loaded
  kProbeDriverError = 4,  // the driver does not work
};

// The document as indented JSON text.
std::string ToJson(const GpuInventory& inventory);
// Parses the document. kDataLoss: anything else.
StatusOr<GpuInventory> GpuInventoryFromJson(std::string_view text);

}  // namespace mt::node
