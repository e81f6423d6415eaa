// A device for tests of links: streams run work at once and there is nothing else, so that the
// tests run under ThreadSanitizer without a maths library.
#pragma once

#include <memory>
#include <string>

#include "common/base/check.h"
#include "kernels/core/device.h"

namespace mt::parallel {

class InlineDevice final : public kernels::Device {
 public:
  kernels::DeviceKind kind() const override { return kernels::DeviceKind::kCpu; }
  std::string Describe() const override { return "inline"; }
  std::unique_ptr<kernels::Stream> CreateStream(kernels::StreamPriority /*priority*/) override {
    return std::make_unique<InlineStream>();
  }
  std::unique_ptr<kernels::DeviceBuffer> Allocate(int64_t /*bytes*/,
                                                  kernels::MemoryKind /*kind*/) override {
    CHECK(false) << "links allocate nothing";
    return nullptr;
  }
  std::unique_ptr<kernels::Event> CreateEvent() override {
    CHECK(false) << "links record no events";
    return nullptr;
  }
  std::unique_ptr<kernels::MarkRing> CreateMarkRing(int64_t /*capacity*/,
                                                    const base::Clock* /*clock*/) override {
    CHECK(false) << "links make no marks";
    return nullptr;
  }
  void Copy(kernels::Stream& /*stream*/, void* /*to*/, const void* /*from*/,
            int64_t /*bytes*/) override {
    CHECK(false) << "links copy nothing";
  }
  void Zero(kernels::Stream& /*stream*/, void* /*to*/, int64_t /*bytes*/) override {
    CHECK(false) << "links clear nothing";
  }

 private:
  class InlineStream final : public kernels::Stream {
   public:
    void Wait(kernels::Event& event) override { event.Synchronize(); }
    void Synchronize() override {}
  };
};

}  // namespace mt::parallel
