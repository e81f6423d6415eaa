// One device as the engine sees it: memory, streams, events, copies. On the CPU a stream runs each
// call at once on the calling thread, so that order is trivially kept; on a GPU a call enqueues and
// returns. Threading: a Stream is used by one thread at a time; Device is thread-safe. Device
// errors (out of memory, a sticky CUDA error) throw DeviceError.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "kernels/core/mark_ring.h"

namespace mt::base {
class Clock;
}

namespace mt::kernels {

// A fault of the device that nothing local can recover from; caught once, by the rank's main.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A device had no room for a buffer. Nothing is broken: the caller may go on.
class DeviceMemoryError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

enum class DeviceKind : uint8_t { kCpu, kCuda };

class Stream;

// A point in a stream's order.
class Event {
 public:
  virtual ~Event() = default;
  virtual void Record(Stream& stream) = 0;
  // Blocks the host until the recorded point is reached. Returns at once if nothing was recorded.
  virtual void Synchronize() = 0;
  virtual bool IsDone() = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Work enqueued after this call waits for `event`.
  virtual void Wait(Event& event) = 0;
  // Blocks the host until everything enqueued so far is done.
  virtual void Synchronize() = 0;
};

// A stretch of calls that the device launches as one (on a GPU a graph). Everything in it is fixed:
// addresses, shapes, constants; values that change are read from device memory. What it refers to
// must outlive it. Destroy it when none of its launches is under way.
class Recording {
 public:
  virtual ~Recording() = default;
  // Enqueues the calls, in order with all else on `stream`, any number of times. A launch waits for
  // the one before.
  virtual void Launch(Stream& stream) = 0;
};

// Memory of a device, 256-byte aligned; freed by the destructor.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() = 0;
  virtual int64_t bytes() const = 0;
};

enum class MemoryKind : uint8_t {
  kDevice,      // plain device memory
  kPinnedHost,  // host memory that the device can copy from and to asynchronously
};

enum class StreamPriority : uint8_t { kLow, kHigh };

struct DeviceMemory {
  int64_t free_bytes = 0;  // what an allocation may still take, whoever uses the rest
  int64_t total_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string Describe() const = 0;  // "cpu, 2 threads, OpenBLAS Haswell"
  // "GPU-5ca8c5d7-...", as the driver's tools name it; empty on the CPU.
  virtual std::string Uuid() const { return {}; }
  // Of the device alone; nullopt where its memory is the host's.
  virtual std::optional<DeviceMemory> Memory() { return std::nullopt; }
  // Not cleared. Throws DeviceMemoryError where there is none.
  virtual std::unique_ptr<DeviceBuffer> Allocate(int64_t bytes, MemoryKind kind) = 0;
  virtual std::unique_ptr<Stream> CreateStream(StreamPriority priority) = 0;
  virtual std::unique_ptr<Event> CreateEvent() = 0;
  // For marks on one stream; `clock` (which must outlive the ring) where the device has none of its
  // own, which is where a stream runs each call at once.
  virtual std::unique_ptr<MarkRing> CreateMarkRing(int64_t capacity, const base::Clock* clock) = 0;
  // Records what `calls` enqueues on `stream`; none of it runs. The calling thread alone is bound
  // by it: within `calls` it must neither wait for the device nor allocate on it, nor make the
  // stream wait for an event from outside. Returns null, with the reason in *why_not, where a call
  // cannot be recorded (the stream is as it was) and where the device has no recordings (`calls`
  // did not run).
  virtual std::unique_ptr<Recording> Record(Stream& /*stream*/,
                                            const std::function<void()>& /*calls*/,
                                            std::string* why_not) {
    *why_not = Describe() + " has no recordings";
    return nullptr;
  }
  // Copies in stream order; either side may be host or device memory. Only with pinned host memory
  // does a GPU's call return at once (worker/memory/staging.h takes any other there and back).
  virtual void Copy(Stream& stream, void* to, const void* from, int64_t bytes) = 0;
  // Fills bytes with zero, in stream order.
  virtual void Zero(Stream& stream, void* to, int64_t bytes) = 0;
};

}  // namespace mt::kernels
