// A device with the CPU's numerics and a GPU's waits: every call is queued on its stream and runs
// late, in an order that the world draws, so that a wait that the program lacks shows without a
// GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/async/async_peer_memory.h"
#include "kernels/async/async_world.h"
#include "kernels/core/device.h"
#include "kernels/ops/backend.h"

namespace mt::kernels::async {

class AsyncStream final : public Stream {
 public:
  AsyncStream(AsyncWorld* world, int rank) : world_(world), queue_(world->Open(rank)) {}
  void Wait(Event& event) override;
  void Synchronize() override { world_->Synchronize(queue_); }
  void WriteValue(uint32_t* at, uint32_t value) override {
    world_->UseWord(queue_, {.at = at, .value = value, .stores = true});
  }
  void WaitValue(uint32_t* at, uint32_t value) override {
    world_->UseWord(queue_, {.at = at, .value = value, .stores = false});
  }
  void Enqueue(AsyncCall call) { world_->Enqueue(queue_, std::move(call)); }

  int rank() const { return queue_->rank; }

 private:
  AsyncWorld* const world_;
  StreamQueue* const queue_;  // the world's; what it holds runs also after this is destroyed
};

// Copies read and write host memory when they run, whether it is pinned or not. Memory begins with
// all bits set: a float is NaN, a token none. There are no recordings.
class AsyncDevice final : public Device {
 public:
  struct Args {
    Device* cpu = nullptr;  // calls run on it; nothing else must
    AsyncWorld* world = nullptr;
    int rank = 0;  // tells devices of a world apart
    // As what the engine treats it. kCuda brings staging of host memory and checks for a GPU.
    DeviceKind kind = DeviceKind::kCpu;
    Sharing sharing = Sharing::kNone;
  };
  explicit AsyncDevice(const Args& args);
  ~AsyncDevice() override;
  AsyncDevice(const AsyncDevice&) = delete;
  AsyncDevice& operator=(const AsyncDevice&) = delete;

  DeviceKind kind() const override { return args_.kind; }
  std::string Describe() const override;
  bool Enqueues() const override { return true; }
  PeerMemory* peers() override { return peers_.get(); }
  std::string Uuid() const override { return AsyncUuid(args_.rank); }
  std::unique_ptr<DeviceBuffer> Allocate(int64_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> CreateStream(StreamPriority priority) override;
  std::unique_ptr<Event> CreateEvent() override;
  std::unique_ptr<MarkRing> CreateMarkRing(int64_t capacity, const base::Clock* clock) override;
  std::unique_ptr<SpanClock> CreateSpanClock(int64_t capacity, const base::Clock* clock) override;
  void Copy(Stream& stream, void* to, const void* from, int64_t bytes) override;
  void Zero(Stream& stream, void* to, int64_t bytes) override;

  // The CPU's stream, on which calls run.
  Stream& cpu_stream() { return *cpu_stream_; }

 private:
  const Args args_;
  const std::unique_ptr<Stream> cpu_stream_;
  const std::unique_ptr<PeerMemory> peers_;
};

// A backend whose ops are queued. `cpu` is a backend whose calls are done when they return; neither
// it nor the world is owned, and both must outlive the result. The rest is as in AsyncDevice.
struct AsyncBackendArgs {
  Backend* cpu = nullptr;
  AsyncWorld* world = nullptr;
  int rank = 0;
  DeviceKind kind = DeviceKind::kCpu;
  Sharing sharing = Sharing::kNone;
};
std::unique_ptr<Backend> MakeAsyncBackend(const AsyncBackendArgs& args);

}  // namespace mt::kernels::async
