// How busy this rank's GPU is, as the driver reports it (NVML): read once a second by a thread of
// its own, so that a driver that hangs holds up neither training nor the beats.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "common/nvml/nvml.h"

namespace megatrain::v1 {
class RankTelemetry;
}

namespace mt::rank {

// Start is called at most once.
class GpuGauge {
 public:
  GpuGauge();
  GpuGauge(const GpuGauge&) = delete;
  GpuGauge& operator=(const GpuGauge&) = delete;
  // Ends the thread; waits for it for a second at most: it may be in a driver that never answers.
  ~GpuGauge();

  // Begins to read the GPU with this UUID. Where there is no NVML, or no such GPU, nothing is
  // reported.
  void Start(const std::string& uuid, const std::string& library = nvml::kLibraryName);
  // Fills in a beat's gpu_utilization where it is known. Any thread; never blocks.
  void Fill(megatrain::v1::RankTelemetry* out) const;

 private:
  // Shared with the thread, which may outlive the gauge.
  struct Shared {
    std::atomic<bool> stopping = false;
    std::atomic<bool> running = false;
    std::atomic<double> utilization = -1;  // negative: not known
  };
  const std::shared_ptr<Shared> shared_;
};

}  // namespace mt::rank
