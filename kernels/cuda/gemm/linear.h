// Linear layers on a GPU, through cuBLASLt and the custom GEMM kernels. Weight gradients are
// accumulated in fp32 directly in their buffer. The tuning table decides which algorithm a GEMM
// uses, and whether bias, GELU, its gradient and column sums are computed by a custom kernel, by
// cuBLASLt's epilogue or by separate kernels (docs/gpu-experiments.md, E2).
#pragma once

#include "kernels/cuda/gemm/tuning_table.h"
#include "kernels/ops/linear.h"

namespace mt::kernels::cuda {

// Plan registers the GEMM in the table and times nothing; its result does not depend on any choice.
// Weight gradients are registered in both modes.
class CudaLinear final : public LinearOps {
 public:
  // None is owned; all must outlive this object.
  CudaLinear(const ActOps* act, const VectorOps* vector, CudaTuningTable* table)
      : LinearOps(act, vector), table_(table) {}

  int64_t Plan(const LinearForwardArgs& args) override;
  int64_t Plan(const LinearForwardActArgs& args) override;
  int64_t Plan(const LinearInputGradArgs& args) override;
  int64_t Plan(const LinearInputGradActArgs& args) override;
  int64_t Plan(const LinearWeightGradArgs& args) override;
  void Forward(Stream& stream, const LinearForwardArgs& args) const override;
  void ForwardFewRows(Stream& stream, const LinearForwardArgs& args) const override;
  void ForwardAct(Stream& stream, const LinearForwardActArgs& args) const override;
  void InputGrad(Stream& stream, const LinearInputGradArgs& args) const override;
  void InputGradAct(Stream& stream, const LinearInputGradActArgs& args) const override;
  void WeightGrad(Stream& stream, const LinearWeightGradArgs& args) const override;

 private:
  CudaTuningTable* const table_;
};

}  // namespace mt::kernels::cuda
