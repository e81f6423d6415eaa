// Streams, events, marks, spans, copies and ops, each as a call of a queue.
#include "kernels/async/async_device.h"

#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/cpu_mark_ring.h"
#include "kernels/cpu/cpu_span_clock.h"
#include "kernels/replay/call_backend.h"

namespace mt::kernels::async {
namespace {

AsyncStream& Of(Stream& stream) { return static_cast<AsyncStream&>(stream); }

class AsyncEvent final : public Event {
 public:
  explicit AsyncEvent(AsyncWorld* world) : world_(world) {}
  void Record(Stream& stream) override {
    auto point = std::make_shared<Point>();
    point_ = point;
    rank_ = Of(stream).rank();
    Of(stream).Enqueue({.reaches = std::move(point)});
  }
  void Synchronize() override {
    if (point_ != nullptr) world_->Synchronize(rank_, point_);
  }
  bool IsDone() override { return point_ == nullptr || world_->IsReached(rank_, point_); }
  const std::shared_ptr<const Point>& point() const { return point_; }

 private:
  AsyncWorld* const world_;
  std::shared_ptr<const Point> point_;  // of the latest recording
  int rank_ = 0;
};

// Takes the memory back to the world, which knows who may still use it.
class AsyncBuffer final : public DeviceBuffer {
 public:
  AsyncBuffer(AsyncWorld* world, int rank, std::unique_ptr<DeviceBuffer> memory, MemoryKind kind)
      : world_(world), rank_(rank), memory_(std::move(memory)) {
    world_->Allocate(rank_, memory_->data(), memory_->bytes(), kind == MemoryKind::kShared);
    if (memory_->bytes() > 0)
      std::memset(memory_->data(), 0xFF, static_cast<size_t>(memory_->bytes()));
  }
  ~AsyncBuffer() override { world_->Free(rank_, std::move(memory_)); }
  AsyncBuffer(const AsyncBuffer&) = delete;
  AsyncBuffer& operator=(const AsyncBuffer&) = delete;
  void* data() override { return memory_->data(); }
  int64_t bytes() const override { return memory_->bytes(); }

 private:
  AsyncWorld* const world_;
  const int rank_;
  std::unique_ptr<DeviceBuffer> memory_;
};

// A mark that is still queued when the ring ends is not made.
class AsyncMarkRing final : public cpu::CpuMarkRing {
 public:
  AsyncMarkRing(int64_t capacity, const base::Clock* clock, Stream* cpu_stream)
      : CpuMarkRing(capacity, clock), cpu_stream_(cpu_stream) {}
  void Mark(Stream& stream) override {
    Of(stream).Enqueue({.run = [this, lives = std::weak_ptr<char>(life_)] {
      if (!lives.expired()) CpuMarkRing::Mark(*cpu_stream_);
    }});
  }

 private:
  Stream* const cpu_stream_;
  const std::shared_ptr<char> life_ = std::make_shared<char>();
};

// A point that is still queued when the clock ends is not noted.
class AsyncSpanClock final : public cpu::CpuSpanClock {
 public:
  AsyncSpanClock(int64_t capacity, const base::Clock* clock, const AsyncDevice::Args& args,
                 Stream* cpu_stream)
      : CpuSpanClock(capacity, clock),
        world_(args.world),
        rank_(args.rank),
        cpu_stream_(cpu_stream),
        passed_(static_cast<size_t>(num_points())) {}

 private:
  bool Note(Stream& stream, int64_t point) override {
    auto passed = std::make_shared<Point>();
    passed_[static_cast<size_t>(point)] = passed;
    auto note = [this, point, lives = std::weak_ptr<char>(life_)] {
      if (!lives.expired()) CpuSpanClock::Note(*cpu_stream_, point);
    };
    Of(stream).Enqueue({.run = std::move(note), .reaches = std::move(passed)});
    return true;
  }
  double SecondsAt(int64_t point) override {
    world_->Synchronize(rank_, passed_[static_cast<size_t>(point)]);
    return CpuSpanClock::SecondsAt(point);
  }

  AsyncWorld* const world_;
  const int rank_;
  Stream* const cpu_stream_;
  std::vector<std::shared_ptr<const Point>> passed_;
  const std::shared_ptr<char> life_ = std::make_shared<char>();
};

class AsyncSink final : public replay::CallSink {
 public:
  explicit AsyncSink(const AsyncBackendArgs& args)
      : cpu_(args.cpu),
        device_({.cpu = &args.cpu->device(),
                 .world = args.world,
                 .rank = args.rank,
                 .kind = args.kind,
                 .sharing = args.sharing}) {}
  Device& device() override { return device_; }
  void Take(Stream& stream, const replay::OpCall& call) override {
    Of(stream).Enqueue({.label = std::string(call.entry()),
                        .uses = UsesOf(call),
                        .run = [this, kept = std::shared_ptr<const replay::OpCall>(call.Clone())] {
                          kept->Run(*cpu_, device_.cpu_stream());
                        }});
  }

 private:
  Backend* const cpu_;
  AsyncDevice device_;
};

}  // namespace

void AsyncStream::Wait(Event& event) {
  const std::shared_ptr<const Point>& point = static_cast<AsyncEvent&>(event).point();
  if (point != nullptr) world_->WaitFor(queue_, point);
}

AsyncDevice::AsyncDevice(const Args& args)
    : args_(args),
      cpu_stream_(args.cpu->CreateStream(StreamPriority::kLow)),
      peers_(MakeAsyncPeerMemory(args.world, args.rank, args.sharing)) {}

AsyncDevice::~AsyncDevice() { args_.world->DropRank(args_.rank); }

std::string AsyncDevice::Describe() const { return "asynchronous " + args_.cpu->Describe(); }

std::unique_ptr<DeviceBuffer> AsyncDevice::Allocate(int64_t bytes, MemoryKind kind) {
  return std::make_unique<AsyncBuffer>(args_.world, args_.rank, args_.cpu->Allocate(bytes, kind),
                                       kind);
}

std::unique_ptr<Stream> AsyncDevice::CreateStream(StreamPriority /*priority*/) {
  return std::make_unique<AsyncStream>(args_.world, args_.rank);
}

std::unique_ptr<Event> AsyncDevice::CreateEvent() {
  return std::make_unique<AsyncEvent>(args_.world);
}

std::unique_ptr<MarkRing> AsyncDevice::CreateMarkRing(int64_t capacity, const base::Clock* clock) {
  return std::make_unique<AsyncMarkRing>(capacity, clock, cpu_stream_.get());
}

std::unique_ptr<SpanClock> AsyncDevice::CreateSpanClock(int64_t capacity,
                                                        const base::Clock* clock) {
  return std::make_unique<AsyncSpanClock>(capacity, clock, args_, cpu_stream_.get());
}

void AsyncDevice::Copy(Stream& stream, void* to, const void* from, int64_t bytes) {
  Of(stream).Enqueue(
      {.label = "copy",
       .uses = {{.name = "from", .data = from, .bytes = bytes},
                {.name = "to", .data = to, .bytes = bytes, .access = Access::kWrite}},
       .run = [this, to, from, bytes] { args_.cpu->Copy(*cpu_stream_, to, from, bytes); }});
}

void AsyncDevice::Zero(Stream& stream, void* to, int64_t bytes) {
  Of(stream).Enqueue(
      {.label = "zero",
       .uses = {{.name = "to", .data = to, .bytes = bytes, .access = Access::kWrite}},
       .run = [this, to, bytes] { args_.cpu->Zero(*cpu_stream_, to, bytes); }});
}

std::unique_ptr<Backend> MakeAsyncBackend(const AsyncBackendArgs& args) {
  return replay::MakeCallBackend(args.cpu, std::make_unique<AsyncSink>(args));
}

}  // namespace mt::kernels::async
