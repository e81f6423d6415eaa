// Attention on a GPU: cuDNN where it has a plan, the custom flash kernels elsewhere (f32, dropout,
// ALiBi, chunks of a sequence, head sizes that are no multiple of 8). The choice depends on the
// arguments alone.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/ops/attention.h"

namespace mt::kernels::cuda {

// Plan builds cuDNN's plan; Forward and Grad of a shape that was never planned build it, too, which
// takes half a second. Plan throws DeviceError if neither cuDNN nor the custom kernels, within this
// GPU's shared memory, support the shape.
class CudaAttention final : public AttentionOps {
 public:
  explicit CudaAttention(const DeviceLimits& limits)
      : limits_(limits), cudnn_(std::make_unique<CudnnAttention>(limits)) {}

  int64_t Plan(const AttentionForwardArgs& args) override;
  void Forward(Stream& stream, const AttentionForwardArgs& args) const override;
  int64_t Plan(const AttentionGradArgs& args) override;
  void Grad(Stream& stream, const AttentionGradArgs& args) const override;
  int64_t DecodeWorkspaceBytes(const AttentionDecodeArgs& args) const override;
  void Decode(Stream& stream, const AttentionDecodeArgs& args) const override;
  void StoreKeys(Stream& stream, const AttentionDecodeArgs& args) const override;
  // See Backend::RunPlanned. The custom kernels are this module's own, loaded with it.
  void RunPlanned() { cudnn_->RunPlanned(); }
  // See Backend::NumPlans.
  int64_t NumPlans() const { return cudnn_->NumPlans(); }
  // See Backend::AttentionKernels.
  std::string Kernels() const;

 private:
  void CheckFits(const AttentionShape& shape) const;
  // Bytes of workspace of a gradient call, by the implementation that computes it.
  int64_t GradBytes(const AttentionGradArgs& args) const;

  // The implementations that compute the calls planned so far.
  struct Who {
    std::atomic<bool> cudnn = false, custom = false;
    std::string Text() const;
  };

  const DeviceLimits limits_;
  const std::unique_ptr<CudnnAttention> cudnn_;
  Who forward_, backward_;
};

}  // namespace mt::kernels::cuda
