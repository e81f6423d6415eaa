// NVIDIA's management library (NVML) as this project uses it: facts and readings of a host's GPUs.
// The library belongs to the driver, so it is loaded on demand (libnvidia-ml.so.1) with
// declarations of our own (nvml.cc), and no program needs it to start. It creates no CUDA context
// and takes no GPU memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"

namespace mt::nvml {

inline constexpr char kLibraryName[] = "libnvidia-ml.so.1";

// Properties that stay fixed while the driver is loaded and no operator changes them. Numbers that
// a GPU does not report are 0.
struct Gpu {
  std::string uuid;        // "GPU-8c5c3b0e-..."
  std::string name;        // "NVIDIA H200"
  std::string pci_bus_id;  // "00000000:18:00.0": sysfs' name with an eight-digit domain
  int compute_major = 0;   // 9 for compute capability 9.0
  int compute_minor = 0;
  int64_t memory_bytes = 0;
  double power_limit_watts = 0;
  // Highest clock of the streaming multiprocessors.
  int max_sm_clock_mhz = 0;
  // Multi-instance GPU mode is on: the GPU can be used by its instances only, not as a whole. False
  // where the GPU or the driver has no such mode.
  bool in_mig_mode = false;
};

// Reasons for reduced clocks at this moment; the values are NVML's nvmlClocksThrottleReasons.
enum ThrottleReason : uint64_t {
  kThrottleIdle = 0x1,
  kThrottlePowerCap = 0x4,
  kThrottleHardware = 0x8,
  kThrottleThermalSoftware = 0x20,
  kThrottleThermalHardware = 0x40,
  kThrottlePowerBrake = 0x80,
};

// A sample of one GPU's state. Numbers that the GPU does not report are 0; utilization, of which 0
// is a value, is then unset.
struct Reading {
  int64_t free_bytes = 0;
  int sm_clock_mhz = 0;
  int memory_clock_mhz = 0;
  double power_watts = 0;
  double temperature_celsius = 0;
  // Share of the driver's last sampling period (1/6 s to 1 s) in which a kernel ran, 0 to 1.
  std::optional<double> utilization;
  uint64_t throttle_reasons = 0;  // bits of ThrottleReason, and other bits that NVML defines
};

// One loaded and initialised library. Thread-safe, as NVML is. GPUs are numbered from 0 by PCI bus
// id, whatever CUDA_VISIBLE_DEVICES says. Calls may block in the driver.
class Library {
 public:
  // kNotFound: there is no such library, or no loaded driver, or one that is too old. kUnavailable:
  // the driver does not answer; the message is its own ("Driver/library version mismatch").
  static StatusOr<std::unique_ptr<Library>> Open(const std::string& path = kLibraryName);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  const std::string& driver_version() const { return driver_version_; }  // "580.82.07"
  int num_gpus() const { return num_gpus_; }
  // kNotFound where the index is out of range, kUnavailable where the GPU has fallen off the bus or
  // refuses the query; so for Read.
  StatusOr<Gpu> Describe(int gpu) const;
  StatusOr<Reading> Read(int gpu) const;
  // The index of the GPU with this UUID; kNotFound where no GPU of this host has it.
  StatusOr<int> IndexOf(const std::string& uuid) const;
  // True where the two GPUs reach each other's memory over NVLink, directly or through a switch;
  // false for one GPU with itself and where the driver cannot tell.
  bool HaveNvLink(int a, int b) const;

 private:
  struct Functions;
  Library(void* handle, std::unique_ptr<Functions> functions);
  Status Start();
  StatusOr<void*> DeviceAt(int gpu) const;
  Status Failure(int code, const char* call, int gpu) const;

  void* const handle_;  // from dlopen
  const std::unique_ptr<const Functions> functions_;
  bool started_ = false;
  std::string driver_version_;
  int num_gpus_ = 0;
};

}  // namespace mt::nvml
