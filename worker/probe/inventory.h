// What mt-gpu-probe finds on a node, and the JSON document in which it tells (README.md). Written
// by the probe, read by the worker agent: both ends are here. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::probe {

// Numbers that the driver does not tell are 0.
struct GpuDevice {
  int index = 0;     // in the order of PCI bus ids, of all GPUs of the host
  std::string uuid;  // "GPU-8c5c3b0e-..."; empty where the GPU does not even tell that
  std::string name;  // "NVIDIA H200"
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;                 // now
  std::string compute_capability;         // "9.0"
  std::string pci_bus_id;                 // "0000:18:00.0", as in sysfs
  int numa_node = -1;                     // -1: not known
  std::vector<std::string> nvlink_peers;  // UUIDs
  double power_limit_watts = 0;
  std::string error;  // why the GPU cannot be used; empty: it answers
};

struct Inventory {
  std::string driver_version;      // "580.82.07"
  std::string error;               // why there are none; empty with exit code 0
  std::vector<GpuDevice> devices;  // that CUDA_VISIBLE_DEVICES lets through
};

// Exit codes of mt-gpu-probe.
enum ProbeExit : int {
  kProbeOk = 0,  // the driver answered; there may be no GPU
  kProbeBadArguments = 2,
  kProbeNoDriver = 3,     // none is installed or loaded here
  kProbeDriverError = 4,  // there is one, and it does not work
};

std::string ToJson(const Inventory& inventory);
// DataLoss: not such a document.
StatusOr<Inventory> FromJson(std::string_view text);

}  // namespace mt::probe
