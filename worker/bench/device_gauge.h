// Reads clocks, power and temperature of a GPU while a benchmark runs: ten times a second on a
// thread of its own, so that the training thread never waits for the driver.
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

class DeviceGauge {
 public:
  // The GPU of this UUID. An error says why nothing can be read:
  // no driver, no such GPU.
  static StatusOr<std::unique_ptr<DeviceGauge>> Create(
      const std::string& uuid, const std::string& library = nvml::kLibraryName);
  DeviceGauge(const DeviceGauge&) = delete;
  DeviceGauge& operator=(const DeviceGauge&) = delete;
  // Joins.
  ~DeviceGauge();

  void Start();
  // Takes a last reading; blocks until the thread has ended.
  void Stop();
  // What was read between Start and Stop: medians and extremes. False where there was nothing.
  bool Fill(megatrain::v1::DeviceReadings* out) const;

 private:
  DeviceGauge(std::unique_ptr<nvml::Library> library, int gpu, nvml::Gpu facts);
  void Run();
  void ReadOnce();

  const std::unique_ptr<nvml::Library> library_;
  const int gpu_;
  const nvml::Gpu facts_;
  base::Mutex mu_;
  base::CondVar wake_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<nvml::Reading> readings_;  // the thread's until it is joined
  std::thread thread_;
};

}  // namespace mt::bench
