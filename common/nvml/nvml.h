// What NVIDIA's management library (NVML) tells of a host's GPUs: facts and readings. The library
// belongs to the driver, so it is loaded when asked for (libnvidia-ml.so.1), by declarations of our
// own (nvml.cc), and no program needs it to start. It makes no CUDA context and takes no GPU
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/status.h"

namespace mt::nvml {

inline constexpr char kLibraryName[] = "libnvidia-ml.so.1";

// What does not change while the driver is loaded and no operator acts. Numbers that a GPU does not
// tell are 0.
struct Gpu {
  std::string uuid;        // "GPU-8c5c3b0e-..."
  std::string name;        // "NVIDIA H200"
  std::string pci_bus_id;  // "00000000:18:00.0", as sysfs has it but for the long domain
  int compute_major = 0;   // 9 of 9.0
  int compute_minor = 0;
  int64_t memory_bytes = 0;
  double power_limit_watts = 0;
  int max_sm_clock_mhz = 0;
  // To be used by its instances (multi-instance GPU), not as a whole. False where the GPU or the
  // driver knows no such mode.
  bool in_mig_mode = false;
};

// What slows the clocks at this moment; the values are NVML's.
enum ThrottleReason : uint64_t {
  kThrottleIdle = 0x1,
  kThrottlePowerCap = 0x4,
  kThrottleHardware = 0x8,
  kThrottleThermalSoftware = 0x20,
  kThrottleThermalHardware = 0x40,
  kThrottlePowerBrake = 0x80,
};

struct Reading {
  int64_t free_bytes = 0;
  int sm_clock_mhz = 0;
  int memory_clock_mhz = 0;
  double power_watts = 0;
  double temperature_celsius = 0;
  uint64_t throttle_reasons = 0;  // bits of ThrottleReason, and others of NVML's
};

// One loaded and initialised library. Thread-safe, as NVML is. GPUs are counted from 0 in the order
// of their PCI bus, whatever CUDA_VISIBLE_DEVICES says.
class Library {
 public:
  // kNotFound: no such library here, or one without its driver. kUnavailable: the driver does not
  // answer; the message is its own ("Driver/library version mismatch").
  static StatusOr<std::unique_ptr<Library>> Open(const std::string& path = kLibraryName);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  const std::string& driver_version() const { return driver_version_; }  // "580.82.07"
  int num_gpus() const { return num_gpus_; }
  // kUnavailable where the GPU has fallen off the bus or denies itself.
  StatusOr<Gpu> Describe(int gpu) const;
  StatusOr<Reading> Read(int gpu) const;
  // kNotFound: no GPU of this host has the UUID.
  StatusOr<int> IndexOf(const std::string& uuid) const;
  // Whether the two reach each other's memory over NVLink, through a switch or not.
  bool HaveNvLink(int a, int b) const;

 private:
  struct Functions;
  Library(void* handle, std::unique_ptr<Functions> functions);
  Status Start();
  StatusOr<void*> DeviceAt(int gpu) const;
  Status Failure(int code, const char* call, int gpu) const;

  void* const handle_;  // of dlopen
  const std::unique_ptr<const Functions> functions_;
  bool started_ = false;
  std::string driver_version_;
  int num_gpus_ = 0;
};

}  // namespace mt::nvml
