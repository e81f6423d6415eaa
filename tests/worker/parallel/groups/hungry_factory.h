// Makes groups that take memory of a device, as communicators of GPUs do.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/device.h"
#include "worker/comm/group_factory.h"

namespace mt::parallel {

class HungryFactory final : public comm::GroupFactory {
 public:
  // Both must outlive the factory; what it took is free again when it is destroyed.
  HungryFactory(comm::GroupFactory* inner, kernels::Device* device, int64_t bytes_of_group)
      : inner_(inner), device_(device), bytes_of_group_(bytes_of_group) {}

  StatusOr<std::unique_ptr<comm::ProcessGroup>> Create(comm::GroupSpec spec) override {
    taken_.push_back(device_->Allocate(bytes_of_group_, kernels::MemoryKind::kDevice));
    return inner_->Create(std::move(spec));
  }
  int64_t num_groups() const { return static_cast<int64_t>(taken_.size()); }

 private:
  comm::GroupFactory* const inner_;
  kernels::Device* const device_;
  const int64_t bytes_of_group_;
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> taken_;
};

}  // namespace mt::parallel
