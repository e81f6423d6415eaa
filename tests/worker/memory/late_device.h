// A fake device that is as asynchronous as a GPU may be: work enqueued on a stream runs only when
// an event behind it, or the stream, is waited for. Memory is the host's. Reveals missing waits.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "kernels/core/device.h"

namespace mt::memory {

class LateStream final : public kernels::Stream {
 public:
  void Enqueue(std::function<void()> call) { calls_.push_back(std::move(call)); }
  int64_t enqueued() const { return done_ + static_cast<int64_t>(calls_.size()); }
  int64_t done() const { return done_; }
  void RunUpTo(int64_t count) {
    while (done_ < count) {
      calls_.front()();
      calls_.pop_front();
      ++done_;
    }
  }
  void Wait(kernels::Event& event) override {
    Enqueue([&event] { event.Synchronize(); });
  }
  void Synchronize() override { RunUpTo(enqueued()); }

 private:
  std::deque<std::function<void()>> calls_;
  int64_t done_ = 0;
};

class LateEvent final : public kernels::Event {
 public:
  void Record(kernels::Stream& stream) override {
    stream_ = &static_cast<LateStream&>(stream);
    at_ = stream_->enqueued();
  }
  void Synchronize() override {
    if (stream_ != nullptr) stream_->RunUpTo(at_);
  }
  bool IsDone() override { return stream_ == nullptr || stream_->done() >= at_; }

 private:
  LateStream* stream_ = nullptr;
  int64_t at_ = 0;
};

class LateDevice final : public kernels::Device {
 public:
  kernels::DeviceKind kind() const override { return kernels::DeviceKind::kCuda; }
  std::string Describe() const override { return "late"; }
  std::unique_ptr<kernels::DeviceBuffer> Allocate(int64_t bytes, kernels::MemoryKind) override {
    return std::make_unique<Buffer>(bytes);
  }
  std::unique_ptr<kernels::Stream> CreateStream(kernels::StreamPriority) override {
    return std::make_unique<LateStream>();
  }
  std::unique_ptr<kernels::Event> CreateEvent() override { return std::make_unique<LateEvent>(); }
  std::unique_ptr<kernels::MarkRing> CreateMarkRing(int64_t, const base::Clock*) override {
    CHECK(false) << "nothing is timed here";
    return nullptr;
  }
  void Copy(kernels::Stream& stream, void* to, const void* from, int64_t bytes) override {
    static_cast<LateStream&>(stream).Enqueue(
        [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  void Zero(kernels::Stream& stream, void* to, int64_t bytes) override {
    static_cast<LateStream&>(stream).Enqueue(
        [=] { std::memset(to, 0, static_cast<size_t>(bytes)); });
  }

 private:
  class Buffer final : public kernels::DeviceBuffer {
   public:
    explicit Buffer(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {}
    void* data() override { return bytes_.data(); }
    int64_t bytes() const override { return static_cast<int64_t>(bytes_.size()); }

   private:
    std::vector<char> bytes_;
  };
};

}  // namespace mt::memory
