// Matrix products of linear layers over cuBLASLt. Gradients of weights are summed in fp32 straight
// into their buffer, written or added. Which algorithm a product takes, and whether bias, GELU, its
// gradient and bias gradients are done by a product of our own, by cuBLASLt's epilogue or by a
// kernel behind it, is the tuning table's (docs/gpu-experiments.md, E2).
#pragma once

#include "kernels/cuda/tuning_table.h"
#include "kernels/ops/linear.h"

namespace mt::kernels::cuda {

// WorkspaceBytes notes what will be run in the table and times nothing; what it returns does not
// depend on any choice. Weight gradients are noted in both modes.
class CudaLinear final : public LinearOps {
 public:
  // All outlive this.
  CudaLinear(const ActOps* act, const VectorOps* vector, CudaTuningTable* table)
      : LinearOps(act, vector), table_(table) {}

  int64_t WorkspaceBytes(const LinearForwardArgs& args) const override;
  int64_t WorkspaceBytes(const LinearForwardActArgs& args) const override;
  int64_t WorkspaceBytes(const LinearInputGradArgs& args) const override;
  int64_t WorkspaceBytes(const LinearInputGradActArgs& args) const override;
  int64_t WorkspaceBytes(const LinearWeightGradArgs& args) const override;
  void Forward(Stream& stream, const LinearForwardArgs& args) const override;
  void ForwardAct(Stream& stream, const LinearForwardActArgs& args) const override;
  void InputGrad(Stream& stream, const LinearInputGradArgs& args) const override;
  void InputGradAct(Stream& stream, const LinearInputGradActArgs& args) const override;
  void WeightGrad(Stream& stream, const LinearWeightGradArgs& args) const override;

 private:
  CudaTuningTable* const table_;
};

}  // namespace mt::kernels::cuda
