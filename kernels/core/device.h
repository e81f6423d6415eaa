// One device as the engine sees it: memory, streams, events, copies. On the CPU a stream runs each
// call at once on the calling thread, so stream order holds trivially; on a GPU a call enqueues
// work and returns.
// Threading: a Stream is used by one thread at a time; Device is thread-safe.
// Ownership: whoever creates a buffer, stream, event, mark ring, span clock or recording owns it
// and destroys it before the Device. Errors: faults of the device (out of memory, a sticky CUDA
// error) throw DeviceError from any call, possibly later than the work that caused them; misuse
// aborts (CHECK).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "common/base/check.h"
#include "kernels/core/mark_ring.h"
#include "kernels/core/span_clock.h"

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
  // Stores a word of device memory, this device's or a peer's (PeerMemory), once all work enqueued
  // so far is done and its writes are seen by whoever sees the word.
  virtual void WriteValue(uint32_t* at, uint32_t value) {
    std::atomic_ref<uint32_t>(*at).store(value, std::memory_order_release);
  }
  // Work enqueued on this stream after this call waits until a word of this device's memory is
  // `value` or up to 2^31 beyond, modulo 2^32. Takes nothing from the device while it waits. A
  // stream that runs calls at once cannot wait (CHECK).
  virtual void WaitValue(uint32_t* at, uint32_t value) {
    const uint32_t now = std::atomic_ref<uint32_t>(*at).load(std::memory_order_acquire);
    CHECK_GE(static_cast<int32_t>(now - value), 0) << "nobody would store the word";
  }
  // The stream in its device's own API (a cudaStream_t), for libraries that enqueue work by
  // themselves; nullptr where there is none.
  virtual void* native() { return nullptr; }
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

// Memory that the device shares with those of other processes on this host: each may copy to it and
// store words in it while the owner computes.
// Lifetime: a mapping stays valid whatever becomes of the process that has exported the memory, so
// that what is on its way there ends without an error. The memory is taken until the last mapping
// is let go of; an owner that goes on frees its memory only once all peers have done so. To let go
// of a mapping, or to free memory of the kind kShared, may wait for all that the device was given.
// Threading: as Device.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // Whether copies between this device and the one with that UUID, of this host, go straight.
  virtual bool CanReach(const std::string& uuid) = 0;
  // A name by which another process maps the allocation of this device that `data` lies in, of the
  // kind kShared; "" and the reason in *why_not where it is of another, or the driver refuses.
  virtual std::string Export(void* data, std::string* why_not) = 0;
  // Maps what another process has exported: data() is the same place, bytes() what follows it in
  // its allocation. nullptr and the reason in *why_not where the driver refuses, or the exporter
  // has gone. Blocks until the exporter has answered, half a minute at most.
  virtual std::unique_ptr<DeviceBuffer> Import(const std::string& name, std::string* why_not) = 0;
};

enum class MemoryKind : uint8_t {
  kDevice,      // plain device memory
  kShared,      // that peers() can export; plain where the device shares none
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
  // Whether calls enqueue work and return, so that only streams and events order it (a GPU), or
  // have done it when they return (the CPU).
  virtual bool Enqueues() const { return false; }
  // nullptr: this device shares no memory with other processes'.
  virtual PeerMemory* peers() { return nullptr; }
  // Makes this device current for the calling thread, which libraries that ask the thread for it
  // (NCCL) need.
  virtual void BindThread() {}
  // "GPU-5ca8c5d7-...", as NVML and nvidia-smi print it; empty on the CPU.
  virtual std::string Uuid() const { return {}; }
  // Free and total memory of the device; nullopt on the CPU, whose memory is the host's.
  virtual std::optional<DeviceMemory> Memory() { return std::nullopt; }
  // What an allocation of `bytes` takes: shared memory comes in pieces of a size of its own.
  virtual int64_t BytesTaken(int64_t bytes, MemoryKind /*kind*/) const { return bytes; }
  // Allocates `bytes` bytes (0 is allowed). The contents are unspecified. Throws DeviceMemoryError
  // if there is no room.
  virtual std::unique_ptr<DeviceBuffer> Allocate(int64_t bytes, MemoryKind kind) = 0;
  virtual std::unique_ptr<Stream> CreateStream(StreamPriority priority) = 0;
  virtual std::unique_ptr<Event> CreateEvent() = 0;
  // Makes a ring of at least `capacity` marks on one stream. `clock` must outlive the ring; it is
  // read only by devices without a clock of their own, that is on the CPU.
  virtual std::unique_ptr<MarkRing> CreateMarkRing(int64_t capacity, const base::Clock* clock) = 0;
  // Makes a clock of at most `capacity` spans on any streams; nullptr: this device times none. Of
  // `clock` the same holds.
  virtual std::unique_ptr<SpanClock> CreateSpanClock(int64_t /*capacity*/,
                                                     const base::Clock* /*clock*/) {
    return nullptr;
  }
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
