// One device as the engine sees it: memory, streams, events, copies. On the CPU a stream runs each
// call at once on the calling thread, so stream order holds trivially; on a GPU a call enqueues
// work and returns.
// Threading: a Stream is used by one thread at a time; Device is thread-safe.
// Ownership: whoever creates a buffer, stream, event, mark ring or recording owns it and destroys
// it before the Device.
// Errors: faults of the device (out of memory, a sticky CUDA error) throw DeviceError from any
// call, possibly later than the work that caused them; misuse aborts (CHECK).
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

// A device fault that nothing local can recover from; a rank catches it once, in its main function,
// and ends.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The device had no room for an allocation. Its state is intact and the caller may go on.
class DeviceMemoryError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

enum class DeviceKind : uint8_t { kCpu, kCuda };

class Stream;

// A point in a stream's order (a CUDA event without timing). An event may be recorded again; waits
// then refer to the latest recording.
class Event {
 public:
  virtual ~Event() = default;
  // Sets the point behind all work enqueued on `stream` so far.
  virtual void Record(Stream& stream) = 0;
  // Blocks the host until the recorded point is reached. Returns at once if the event was never
  // recorded.
  virtual void Synchronize() = 0;
  // Returns whether the recorded point is reached, without blocking; true if the event was never
  // recorded.
  virtual bool IsDone() = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Work enqueued on this stream after this call waits for `event`; the host does not.
  virtual void Wait(Event& event) = 0;
  // Blocks the host until all work enqueued so far is done.
  virtual void Synchronize() = 0;
};

// A sequence of calls that the device launches as one unit (on a GPU an instantiated CUDA graph).
// Everything in it is fixed: addresses, shapes, constants; values that change are read from device
// memory. All memory it refers to must outlive it, and it must not be destroyed while a launch is
// in flight.
class Recording {
 public:
  virtual ~Recording() = default;
  // Enqueues the recorded calls, in order with all other work on `stream`; any number of times. A
  // launch waits for the previous one.
  virtual void Launch(Stream& stream) = 0;
};

// Memory of a device, aligned to 256 bytes; freed by the destructor.
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
  int64_t free_bytes = 0;  // available to an allocation, whichever process holds the rest
  int64_t total_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string Describe() const = 0;  // "cpu, 2 threads, OpenBLAS Haswell"
  // "GPU-5ca8c5d7-...", as NVML and nvidia-smi print it; empty on the CPU.
  virtual std::string Uuid() const { return {}; }
  // Free and total memory of the device; nullopt on the CPU, whose memory is the host's.
  virtual std::optional<DeviceMemory> Memory() { return std::nullopt; }
  // Allocates `bytes` bytes (0 is allowed). The contents are unspecified. Throws DeviceMemoryError
  // if there is no room.
  virtual std::unique_ptr<DeviceBuffer> Allocate(int64_t bytes, MemoryKind kind) = 0;
  virtual std::unique_ptr<Stream> CreateStream(StreamPriority priority) = 0;
  virtual std::unique_ptr<Event> CreateEvent() = 0;
  // Makes a ring of at least `capacity` marks on one stream. `clock` must outlive the ring; it is
  // read only by devices without a clock of their own, that is on the CPU.
  virtual std::unique_ptr<MarkRing> CreateMarkRing(int64_t capacity, const base::Clock* clock) = 0;
  // Records the work that `calls` enqueues on `stream` without running it (CUDA stream capture).
  // The restrictions bind the calling thread alone: within `calls` it must neither wait for the
  // device nor allocate on it, nor make the stream wait for an event from outside. Returns nullptr,
  // with the reason in *why_not, if a call cannot be captured (the stream is left as it was) or if
  // the device has no recordings (`calls` did not run).
  virtual std::unique_ptr<Recording> Record(Stream& /*stream*/,
                                            const std::function<void()>& /*calls*/,
                                            std::string* why_not) {
    *why_not = Describe() + " has no recordings";
    return nullptr;
  }
  // Copies in stream order; both sides may be host or device memory. On a GPU the call returns
  // without waiting only if host memory is pinned; worker/memory/staging.h moves pageable memory
  // through pinned buffers.
  virtual void Copy(Stream& stream, void* to, const void* from, int64_t bytes) = 0;
  // Sets bytes to zero, in stream order.
  virtual void Zero(Stream& stream, void* to, int64_t bytes) = 0;
};

}  // namespace mt::kernels
