// Matrix products of linear layers over cuBLASLt. Gradients of weights are summed in fp32 straight
// into their buffer, written or added. Bias and GELU epilogues are used where timing says that they
// pay; column sums of dy are a kernel of their own (docs/gpu-experiments.md, E2).
#pragma once

#include <memory>

#include "kernels/cuda/product.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/vector.h"

namespace mt::kernels::cuda {

// WorkspaceBytes is where choices are made: it times the algorithms for shapes it sees for the
// first time, which takes a fraction of a second and memory for the operands. A call with a shape
// that nobody planned does the same first, so such calls cannot be captured.
class CudaLinear final : public LinearOps {
 public:
  // `act` and `vector` outlive this.
  CudaLinear(const DeviceLimits& limits, const ActOps* act, const VectorOps* vector)
      : LinearOps(act), vector_(vector), table_(std::make_unique<ProductTable>(limits)) {}

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
  bool Fuses(const LinearForwardActArgs& args) const;
  bool Fuses(const LinearInputGradActArgs& args) const;

  const VectorOps* const vector_;
  const std::unique_ptr<ProductTable> table_;
};

}  // namespace mt::kernels::cuda
