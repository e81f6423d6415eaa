// A backend as it is, but its device counts recordings and their launches, and refuses to record
// where a test wants that.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/ops/backend.h"

namespace mt::train {

struct RecordingCounts {
  int recorded = 0;
  int launched = 0;
  int refused = 0;
};

class CountingBackend final : public kernels::Backend {
 public:
  explicit CountingBackend(kernels::Backend* real) : real_(real), device_(this) {}

  const RecordingCounts& counts() const { return counts_; }
  std::string refusal;  // not empty: why nothing is recorded

  kernels::Device& device() override { return device_; }
  const kernels::EmbeddingOps& embedding() const override { return real_->embedding(); }
  const kernels::AddNormOps& add_norm() const override { return real_->add_norm(); }
  kernels::LinearOps& linear() override { return real_->linear(); }
  const kernels::ActOps& act() const override { return real_->act(); }
  const kernels::RopeOps& rope() const override { return real_->rope(); }
  kernels::AttentionOps& attention() override { return real_->attention(); }
  const kernels::LossOps& loss() const override { return real_->loss(); }
  const kernels::UpdateOps& update() const override { return real_->update(); }
  const kernels::VectorOps& vector() const override { return real_->vector(); }
  const kernels::RandomOps& random() const override { return real_->random(); }
  kernels::TuningTable* tuning() override { return real_->tuning(); }
  int64_t NumPlans() const override { return real_->NumPlans(); }
  std::string AttentionKernels() const override { return real_->AttentionKernels(); }

 private:
  class CountingRecording final : public kernels::Recording {
   public:
    CountingRecording(std::unique_ptr<kernels::Recording> real, RecordingCounts* counts)
        : real_(std::move(real)), counts_(counts) {}
    void Launch(kernels::Stream& stream) override {
      ++counts_->launched;
      real_->Launch(stream);
    }

   private:
    const std::unique_ptr<kernels::Recording> real_;
    RecordingCounts* const counts_;
  };
  class CountingDevice final : public kernels::Device {
   public:
    explicit CountingDevice(CountingBackend* backend) : backend_(backend) {}
    kernels::DeviceKind kind() const override { return real().kind(); }
    std::string Describe() const override { return real().Describe(); }
    std::optional<kernels::DeviceMemory> Memory() override { return real().Memory(); }
    std::unique_ptr<kernels::DeviceBuffer> Allocate(int64_t bytes,
                                                    kernels::MemoryKind kind) override {
      return real().Allocate(bytes, kind);
    }
    std::unique_ptr<kernels::Stream> CreateStream(kernels::StreamPriority priority) override {
      return real().CreateStream(priority);
    }
    std::unique_ptr<kernels::Event> CreateEvent() override { return real().CreateEvent(); }
    std::unique_ptr<kernels::MarkRing> CreateMarkRing(int64_t capacity,
                                                      const base::Clock* clock) override {
      return real().CreateMarkRing(capacity, clock);
    }
    std::unique_ptr<kernels::Recording> Record(kernels::Stream& stream,
                                               const std::function<void()>& calls,
                                               std::string* why_not) override {
      if (!backend_->refusal.empty()) {
        ++backend_->counts_.refused;
        *why_not = backend_->refusal;
        return nullptr;
      }
      auto recording = real().Record(stream, calls, why_not);
      if (recording == nullptr) return nullptr;
      ++backend_->counts_.recorded;
      return std::make_unique<CountingRecording>(std::move(recording), &backend_->counts_);
    }
    void Copy(kernels::Stream& stream, void* to, const void* from, int64_t bytes) override {
      real().Copy(stream, to, from, bytes);
    }
    void Zero(kernels::Stream& stream, void* to, int64_t bytes) override {
      real().Zero(stream, to, bytes);
    }

   private:
    kernels::Device& real() const { return backend_->real_->device(); }
    CountingBackend* const backend_;
  };

  kernels::Backend* const real_;
  CountingDevice device_;
  RecordingCounts counts_;
};

}  // namespace mt::train
