// A recording of an event is an object of its own, shared by the event, the stream that reaches it
// and the streams that wait for it, so that recording again does not move older waits.
#include "tests/worker/comm/queue_device.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "kernels/core/mark_ring.h"
#include "tests/worker/comm/nccl_stand_in/queue.h"

namespace mt::comm {
namespace {

using kernels::Event;
using kernels::MarkSlot;
using kernels::Stream;

class QueueStream final : public Stream {
 public:
  QueueStream() : thread_([this] { Run(); }) {}
  ~QueueStream() override {
    {
      const std::lock_guard lock(mu_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  QueueStream(const QueueStream&) = delete;
  QueueStream& operator=(const QueueStream&) = delete;

  void Enqueue(std::function<void()> call) {
    {
      const std::lock_guard lock(mu_);
      calls_.push_back(std::move(call));
    }
    changed_.notify_all();
  }
  void Wait(Event& event) override;
  void Synchronize() override {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return calls_.empty() && !running_; });
  }
  void WriteValue(uint32_t* at, uint32_t value) override {
    Enqueue([at, value] { std::atomic_ref<uint32_t>(*at).store(value); });
  }
  void WaitValue(uint32_t* at, uint32_t value) override {
    Enqueue([at, value] {
      const std::atomic_ref<uint32_t> word(*at);
      while (static_cast<int32_t>(word.load() - value) < 0) std::this_thread::yield();
    });
  }
  void* native() override { return &queue_; }

 private:
  static void EnqueueNative(void* self, void (*call)(void* context), void* context) {
    static_cast<QueueStream*>(self)->Enqueue([call, context] { call(context); });
  }

  void Run() {
    std::unique_lock lock(mu_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !calls_.empty(); });
      if (calls_.empty()) return;
      const std::function<void()> call = std::move(calls_.front());
      calls_.pop_front();
      running_ = true;
      lock.unlock();
      call();
      lock.lock();
      running_ = false;
      changed_.notify_all();
    }
  }

  stand_in::Queue queue_{.enqueue = &EnqueueNative, .self = this};
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  bool running_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the members above
};

class Recording {
 public:
  void Reach() {
    const std::lock_guard lock(mu_);
    reached_ = true;
    changed_.notify_all();
  }
  bool IsReached() {
    const std::lock_guard lock(mu_);
    return reached_;
  }
  void Await() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return reached_; });
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool reached_ = false;
};

class QueueEvent final : public Event {
 public:
  void Record(Stream& stream) override {
    auto recording = std::make_shared<Recording>();
    {
      const std::lock_guard lock(mu_);
      newest_ = recording;
    }
    EnqueueOn(stream, [recording] { recording->Reach(); });
  }
  void Synchronize() override {
    if (const auto recording = newest()) recording->Await();
  }
  bool IsDone() override {
    const auto recording = newest();
    return recording == nullptr || recording->IsReached();
  }
  std::shared_ptr<Recording> newest() {
    const std::lock_guard lock(mu_);
    return newest_;
  }

 private:
  std::mutex mu_;
  std::shared_ptr<Recording> newest_;
};

void QueueStream::Wait(Event& event) {
  const auto recording = static_cast<QueueEvent&>(event).newest();
  if (recording != nullptr) Enqueue([recording] { recording->Await(); });
}

class QueueBuffer final : public kernels::DeviceBuffer {
 public:
  explicit QueueBuffer(int64_t bytes)
      : bytes_(bytes), data_(::operator new(static_cast<size_t>(bytes), kAlignment)) {}
  ~QueueBuffer() override { ::operator delete(data_, kAlignment); }
  QueueBuffer(const QueueBuffer&) = delete;
  QueueBuffer& operator=(const QueueBuffer&) = delete;
  void* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{256};
  const int64_t bytes_;
  void* const data_;
};

class QueueMarkRing final : public kernels::MarkRing {
 public:
  QueueMarkRing(int64_t capacity, const base::Clock* clock)
      : QueueMarkRing(std::vector<MarkSlot>(static_cast<size_t>(std::max(capacity, int64_t{1}))),
                      clock) {}
  void Mark(Stream& stream) override {
    EnqueueOn(stream, [this] { Reach(); });
  }

 private:
  QueueMarkRing(std::vector<MarkSlot> slots, const base::Clock* clock)
      : MarkRing(slots.data(), static_cast<int64_t>(slots.size())),
        storage_(std::move(slots)),
        clock_(clock) {}

  static void Store(uint64_t* word, uint64_t value) {
    std::atomic_ref<uint64_t>(*word).store(value);
  }
  void Reach() {
    const std::chrono::nanoseconds now = clock_->Now().time_since_epoch();
    MarkSlot* const at = slot(++num_reached_);
    Store(&at->sequence, 0);  // half written is no mark
    Store(&at->nanoseconds, static_cast<uint64_t>(now.count()));
    Store(&at->sequence, static_cast<uint64_t>(num_reached_));
  }

  std::vector<MarkSlot> storage_;
  const base::Clock* const clock_;
  int64_t num_reached_ = 0;
};

}  // namespace

void EnqueueOn(Stream& stream, std::function<void()> call) {
  static_cast<QueueStream&>(stream).Enqueue(std::move(call));
}

std::string QueueDevice::Uuid() const {
  return fmt::format("QUEUE-{}-{}", getpid(), static_cast<const void*>(this));
}

std::unique_ptr<kernels::DeviceBuffer> QueueDevice::Allocate(int64_t bytes,
                                                             kernels::MemoryKind /*kind*/) {
  return std::make_unique<QueueBuffer>(bytes);
}

std::unique_ptr<Stream> QueueDevice::CreateStream(kernels::StreamPriority /*priority*/) {
  return std::make_unique<QueueStream>();
}

std::unique_ptr<Event> QueueDevice::CreateEvent() { return std::make_unique<QueueEvent>(); }

std::unique_ptr<kernels::MarkRing> QueueDevice::CreateMarkRing(int64_t capacity,
                                                               const base::Clock* clock) {
  return std::make_unique<QueueMarkRing>(capacity, clock);
}

void QueueDevice::Copy(Stream& stream, void* to, const void* from, int64_t bytes) {
  EnqueueOn(stream, [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}

void QueueDevice::Zero(Stream& stream, void* to, int64_t bytes) {
  EnqueueOn(stream, [=] { std::memset(to, 0, static_cast<size_t>(bytes)); });
}

}  // namespace mt::comm
