// The CPU backend behind a device that says it is a GPU: memory of its own, counted, and copies
// only between what it has allocated. Pageable host memory, which a GPU would copy with the host
// waiting, is a failure of the test. Everything runs at once, to the CPU's bits.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/backend.h"

namespace mt::train {

class GuardedDevice final : public kernels::Device {
 public:
  GuardedDevice(kernels::Device* inner, int64_t total_bytes)
      : inner_(inner), total_bytes_(total_bytes) {}

  kernels::DeviceKind kind() const override { return kernels::DeviceKind::kCuda; }
  std::string Describe() const override { return "guarded " + inner_->Describe(); }
  std::optional<kernels::DeviceMemory> Memory() override {
    const std::lock_guard<std::mutex> lock(mu_);
    return kernels::DeviceMemory{.free_bytes = total_bytes_ - used_bytes_,
                                 .total_bytes = total_bytes_};
  }
  std::unique_ptr<kernels::DeviceBuffer> Allocate(int64_t bytes,
                                                  kernels::MemoryKind kind) override {
    auto inner = inner_->Allocate(bytes, kind);
    const std::lock_guard<std::mutex> lock(mu_);
    const int64_t counted = kind == kernels::MemoryKind::kPinnedHost ? 0 : bytes;
    if (used_bytes_ + counted > total_bytes_) throw kernels::DeviceMemoryError("guarded: no room");
    used_bytes_ += counted;
    ranges_[static_cast<const char*>(inner->data())] = bytes;
    return std::make_unique<Buffer>(this, std::move(inner), counted);
  }
  std::unique_ptr<kernels::Stream> CreateStream(kernels::StreamPriority priority) override {
    return inner_->CreateStream(priority);
  }
  std::unique_ptr<kernels::Event> CreateEvent() override { return inner_->CreateEvent(); }
  std::unique_ptr<kernels::MarkRing> CreateMarkRing(int64_t capacity,
                                                    const base::Clock* clock) override {
    return inner_->CreateMarkRing(capacity, clock);
  }
  void Copy(kernels::Stream& stream, void* to, const void* from, int64_t bytes) override {
    EXPECT_TRUE(Owns(to, bytes)) << "a copy of " << bytes << " bytes to pageable memory";
    EXPECT_TRUE(Owns(from, bytes)) << "a copy of " << bytes << " bytes from pageable memory";
    ++num_copies_;
    inner_->Copy(stream, to, from, bytes);
  }
  void Zero(kernels::Stream& stream, void* to, int64_t bytes) override {
    EXPECT_TRUE(Owns(to, bytes)) << "clears " << bytes << " bytes of pageable memory";
    inner_->Zero(stream, to, bytes);
  }
  int64_t num_copies() const { return num_copies_; }

 private:
  class Buffer final : public kernels::DeviceBuffer {
   public:
    Buffer(GuardedDevice* device, std::unique_ptr<kernels::DeviceBuffer> inner, int64_t counted)
        : device_(device), inner_(std::move(inner)), counted_(counted) {}
    ~Buffer() override {
      const std::lock_guard<std::mutex> lock(device_->mu_);
      device_->used_bytes_ -= counted_;
      device_->ranges_.erase(static_cast<const char*>(inner_->data()));
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* data() override { return inner_->data(); }
    int64_t bytes() const override { return inner_->bytes(); }

   private:
    GuardedDevice* const device_;
    const std::unique_ptr<kernels::DeviceBuffer> inner_;
    const int64_t counted_;
  };

  bool Owns(const void* data, int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto* const first = static_cast<const char*>(data);
    auto range = ranges_.upper_bound(first);
    if (range == ranges_.begin()) return false;
    --range;
    return first + bytes <= range->first + range->second;
  }

  kernels::Device* const inner_;
  const int64_t total_bytes_;
  std::mutex mu_;
  int64_t used_bytes_ = 0;
  int64_t num_copies_ = 0;
  std::map<const char*, int64_t> ranges_;
};

class GuardedBackend final : public kernels::Backend {
 public:
  explicit GuardedBackend(int64_t total_bytes)
      : cpu_(kernels::cpu::MakeCpuBackend({.num_threads = 1}).value()),
        device_(&cpu_->device(), total_bytes) {}

  GuardedDevice& device() override { return device_; }
  const kernels::EmbeddingOps& embedding() const override { return cpu_->embedding(); }
  const kernels::AddNormOps& add_norm() const override { return cpu_->add_norm(); }
  kernels::LinearOps& linear() override { return cpu_->linear(); }
  const kernels::ActOps& act() const override { return cpu_->act(); }
  const kernels::RopeOps& rope() const override { return cpu_->rope(); }
  kernels::AttentionOps& attention() override { return cpu_->attention(); }
  const kernels::LossOps& loss() const override { return cpu_->loss(); }
  const kernels::UpdateOps& update() const override { return cpu_->update(); }
  const kernels::VectorOps& vector() const override { return cpu_->vector(); }
  const kernels::RandomOps& random() const override { return cpu_->random(); }

 private:
  const std::unique_ptr<kernels::Backend> cpu_;
  GuardedDevice device_;
};

}  // namespace mt::train
