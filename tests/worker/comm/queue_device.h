// A device that enqueues, as a GPU does, without one: memory of the host, streams that are queues
// with a thread each, events that those threads reach. What it is given runs later, so order that
// nobody asked for with an event is not there.
#pragma once

#include <memory>
#include <string>

#include "kernels/core/device.h"

namespace mt::comm {

// As in kernels/core/device.h. A stream that is destroyed runs first what it was given: this blocks
// while a call in it hangs.
class QueueDevice final : public kernels::Device {
 public:
  kernels::DeviceKind kind() const override { return kernels::DeviceKind::kCpu; }
  std::string Describe() const override { return "queues on the host"; }
  bool Enqueues() const override { return true; }
  // Names this object: two ranks that are given different devices have different ones.
  std::string Uuid() const override;
  // From the heap, so that AddressSanitizer sees its bounds.
  std::unique_ptr<kernels::DeviceBuffer> Allocate(int64_t bytes, kernels::MemoryKind kind) override;
  // native() is a stand_in::Queue*.
  std::unique_ptr<kernels::Stream> CreateStream(kernels::StreamPriority priority) override;
  std::unique_ptr<kernels::Event> CreateEvent() override;
  // Times are the clock's.
  std::unique_ptr<kernels::MarkRing> CreateMarkRing(int64_t capacity,
                                                    const base::Clock* clock) override;
  void Copy(kernels::Stream& stream, void* to, const void* from, int64_t bytes) override;
  void Zero(kernels::Stream& stream, void* to, int64_t bytes) override;
};

// Puts host code on a stream of a QueueDevice.
void EnqueueOn(kernels::Stream& stream, std::function<void()> call);

}  // namespace mt::comm
