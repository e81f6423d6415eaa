// Samples clocks, power and temperature of a GPU while a benchmark runs, ten times a second, on its
// own thread, so that the training thread never waits for the driver.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/nvml/nvml.h"

namespace megatrain::v1 {
class DeviceReadings;
}

namespace mt::bench {

// Start, Stop and Fill are called by one thread.
class DeviceGauge {
 public:
  // Opens NVML (`library`) and finds the GPU with this UUID. Errors are NVML's: no driver, no such
  // GPU.
  static StatusOr<std::unique_ptr<DeviceGauge>> Create(
      const std::string& uuid, const std::string& library = nvml::kLibraryName);
  DeviceGauge(const DeviceGauge&) = delete;
  DeviceGauge& operator=(const DeviceGauge&) = delete;
  // Stops the thread and joins it.
  ~DeviceGauge();

  // Starts sampling; does nothing if it is already running.
  void Start();
  // Takes a last sample and joins the thread.
  void Stop();
  // Fills in medians and extremes of the samples between Start and Stop; false if there are none.
  // Call after Stop.
  bool Fill(megatrain::v1::DeviceReadings* out) const;

 private:
  DeviceGauge(std::unique_ptr<nvml::Library> library, int gpu, nvml::Gpu facts);
  void Run();
  // Appends one reading; a failed one is left out.
  void ReadOnce();

  const std::unique_ptr<nvml::Library> library_;
  const int gpu_;
  const nvml::Gpu facts_;
  base::Mutex mu_;
  base::CondVar wake_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<nvml::Reading> readings_;  // used by the thread until it is joined
  std::thread thread_;
};

}  // namespace mt::bench
