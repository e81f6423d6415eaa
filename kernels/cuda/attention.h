// Attention on a GPU: cuDNN where it has a plan, the own flash kernels elsewhere (f32, dropout,
// ALiBi, chunks of a sequence, odd head sizes). The choice is a function of the arguments alone.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/ops/attention.h"

namespace mt::kernels::cuda {

// WorkspaceBytes builds cuDNN's plan, so a call with a shape that nobody planned takes half a
// second; it throws DeviceError where neither cuDNN nor this GPU's shared memory is up to the
// shape.
class CudaAttention final : public AttentionOps {
 public:
  explicit CudaAttention(const DeviceLimits& limits)
      : limits_(limits), cudnn_(std::make_unique<CudnnAttention>(limits)) {}

  int64_t WorkspaceBytes(const AttentionForwardArgs& args) const override;
  void Forward(Stream& stream, const AttentionForwardArgs& args) const override;
  int64_t WorkspaceBytes(const AttentionGradArgs& args) const override;
  void Grad(Stream& stream, const AttentionGradArgs& args) const override;
  // Of Backend::NumPlans.
  int64_t NumPlans() const { return cudnn_->NumPlans(); }
  // Of Backend::AttentionKernels.
  std::string Kernels() const;

 private:
  void CheckFits(const AttentionShape& shape) const;

  // Who computes what was planned.
  struct Who {
    std::atomic<bool> cudnn = false, own = false;
    std::string Text() const;
  };

  const DeviceLimits limits_;
  const std::unique_ptr<CudnnAttention> cudnn_;
  mutable Who forward_, backward_;
};

}  // namespace mt::kernels::cuda
