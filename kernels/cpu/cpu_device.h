// The host as a Device: memory mapped from the kernel, streams that run each call at once on the
// calling thread, events that are always done, no recordings.
#pragma once

#include <memory>
#include <string>

#include "kernels/core/device.h"
#include "kernels/cpu/thread_pool.h"

namespace mt::kernels::cpu {

class CpuDevice final : public Device {
 public:
  // `pool` must outlive the device; large copies and fills are split over its threads.
  CpuDevice(ThreadPool* pool, std::string description);

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string Describe() const override { return description_; }
  // The memory is zeroed and page-aligned, for either kind. Throws DeviceMemoryError if there is
  // none.
  std::unique_ptr<DeviceBuffer> Allocate(int64_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> CreateStream(StreamPriority priority) override;
  std::unique_ptr<Event> CreateEvent() override;
  std::unique_ptr<MarkRing> CreateMarkRing(int64_t capacity, const base::Clock* clock) override;
  std::unique_ptr<SpanClock> CreateSpanClock(int64_t capacity, const base::Clock* clock) override;
  void Copy(Stream& stream, void* to, const void* from, int64_t bytes) override;
  void Zero(Stream& stream, void* to, int64_t bytes) override;

 private:
  ThreadPool* const pool_;
  const std::string description_;
};

}  // namespace mt::kernels::cpu
