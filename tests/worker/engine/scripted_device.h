// A device for tests of marks and recordings: calls are queued and run when the test says so, as a
// GPU's would at some time; a recording is a list of calls. The clock is the test's.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "kernels/core/device.h"

namespace mt::train {

class ScriptedDevice final : public kernels::Device {
 public:
  using Call = std::function<void()>;

  // What an op does: queues `call`, or adds it to the recording under way.
  void Enqueue(Call call) { (recording_ ? *recording_ : queue_).push_back(std::move(call)); }
  // Runs the next `count` calls, as many as there are.
  void Run(int count) {
    for (; count > 0 && !queue_.empty(); --count) {
      queue_.front()();
      queue_.pop_front();
    }
  }
  void RunAll() { Run(1 << 30); }
  size_t num_waiting() const { return queue_.size(); }
  int num_recorded() const { return num_recorded_; }
  int num_launches() const { return num_launches_; }
  // From here on Record fails for this reason.
  void RefuseRecordings(std::string why) { refusal_ = std::move(why); }

  kernels::DeviceKind kind() const override { return kernels::DeviceKind::kCuda; }
  std::string Describe() const override { return "scripted"; }
  bool Enqueues() const override { return true; }
  std::unique_ptr<kernels::Stream> CreateStream(kernels::StreamPriority /*priority*/) override {
    return std::make_unique<ScriptedStream>(this);
  }
  std::unique_ptr<kernels::MarkRing> CreateMarkRing(int64_t capacity,
                                                    const base::Clock* clock) override {
    return std::make_unique<Ring>(this, capacity, clock);
  }
  std::unique_ptr<kernels::Recording> Record(kernels::Stream& /*stream*/, const Call& calls,
                                             std::string* why_not) override {
    std::deque<Call> recorded;
    recording_ = &recorded;
    calls();
    recording_ = nullptr;
    if (refusal_) {
      *why_not = *refusal_;
      return nullptr;
    }
    ++num_recorded_;
    return std::make_unique<Recorded>(this, std::move(recorded));
  }
  std::unique_ptr<kernels::DeviceBuffer> Allocate(int64_t, kernels::MemoryKind) override {
    CHECK(false) << "not asked for";
    return nullptr;
  }
  std::unique_ptr<kernels::Event> CreateEvent() override {
    CHECK(false) << "not asked for";
    return nullptr;
  }
  void Copy(kernels::Stream&, void*, const void*, int64_t) override { CHECK(false); }
  void Zero(kernels::Stream&, void*, int64_t) override { CHECK(false); }

 private:
  class ScriptedStream final : public kernels::Stream {
   public:
    explicit ScriptedStream(ScriptedDevice* device) : device_(device) {}
    void Wait(kernels::Event&) override { CHECK(false) << "not asked for"; }
    void Synchronize() override { device_->RunAll(); }

   private:
    ScriptedDevice* const device_;
  };
  class Ring final : public kernels::MarkRing {
   public:
    Ring(ScriptedDevice* device, int64_t capacity, const base::Clock* clock)
        : Ring(device, std::vector<kernels::MarkSlot>(static_cast<size_t>(capacity)), clock) {}
    void Mark(kernels::Stream& /*stream*/) override {
      device_->Enqueue([this] {
        const std::chrono::nanoseconds now = clock_->Now().time_since_epoch();
        ++reached_;
        *slot(reached_) = {static_cast<uint64_t>(reached_), static_cast<uint64_t>(now.count())};
      });
    }

   private:
    Ring(ScriptedDevice* device, std::vector<kernels::MarkSlot> slots, const base::Clock* clock)
        : MarkRing(slots.data(), static_cast<int64_t>(slots.size())),
          slots_(std::move(slots)),
          device_(device),
          clock_(clock) {}

    std::vector<kernels::MarkSlot> slots_;
    ScriptedDevice* const device_;
    const base::Clock* const clock_;
    int64_t reached_ = 0;
  };
  class Recorded final : public kernels::Recording {
   public:
    Recorded(ScriptedDevice* device, std::deque<Call> calls)
        : device_(device), calls_(std::move(calls)) {}
    void Launch(kernels::Stream& /*stream*/) override {
      CHECK(device_->recording_ == nullptr);
      ++device_->num_launches_;
      for (const Call& call : calls_) device_->queue_.push_back(call);
    }

   private:
    ScriptedDevice* const device_;
    const std::deque<Call> calls_;
  };

  std::deque<Call> queue_;
  std::deque<Call>* recording_ = nullptr;
  std::optional<std::string> refusal_;
  int num_recorded_ = 0;
  int num_launches_ = 0;
};

}  // namespace mt::train
