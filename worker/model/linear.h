// A linear layer of the network: its parameters and the products over them. Several logical
// matrices of equal width (q, k, v) may lie side by side as one. Tensor parallelism replaces this
// class, not its callers. Legend: T tokens, k inputs, n outputs of all parts together.
#pragma once

#include <string>
#include <vector>

#include "kernels/ops/linear.h"
#include "worker/model/gpt_config.h"
#include "worker/model/pass.h"
#include "worker/params/param_store.h"

namespace mt::model {

class Linear {
 public:
  // Who adds the bias and sums its gradient: the product itself, or, where the output is one of
  // several partial sums of a branch, the Border that closes the branch.
  enum class BiasPlace : uint8_t { kProduct, kBorder };

  struct Args {
    std::vector<std::string> parts;  // names without ".weight": "layers.0.attention.q", ...
    int64_t inputs = 0;              // k
    int64_t part_outputs = 0;        // n / parts
    double std = 0;                  // of initial weights
    BiasPlace bias_place = BiasPlace::kProduct;
    int layer = -1;
  };
  Linear(const GptConfig& config, Args args);

  // All weights, then all biases.
  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  void PlanWorkspace(ScratchPlan* plan) const;

  // x [T, k] -> y [T, n].
  void Forward(const Pass& pass, const kernels::Tensor& x, const kernels::Tensor& y) const;
  // x [T, k] -> pre [T, n], y = gelu(pre) [T, n].
  void ForwardAct(const Pass& pass, const kernels::Tensor& x, const kernels::Tensor& pre,
                  const kernels::Tensor& y) const;
  // dy [T, n] -> dx [T, k].
  void InputGrad(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& dx) const;
  // dy [T, n], pre [T, k] with x = gelu(pre) -> dpre [T, k].
  void InputGradAct(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& pre,
                    const kernels::Tensor& dpre) const;
  // dy [T, n], x [T, k] -> gradients of weights and, with kProduct, biases; reports them done.
  void WeightGrad(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& x) const;

  // Of a layer with one part and kBorder.
  params::ParamId border_bias() const;

 private:
  bool adds_bias() const { return args_.bias_place == BiasPlace::kProduct; }
  int64_t outputs() const { return args_.part_outputs * static_cast<int64_t>(args_.parts.size()); }

  const kernels::DType dtype_;
  const int64_t tokens_;  // T, for planning
  const Args args_;
  std::vector<params::ParamId> weight_ids_, bias_ids_;  // by part
  kernels::Tensor w_;                                   // [n, k]
  kernels::Tensor bias_;                                // [n]; absent with kBorder
  kernels::Tensor dw_, dbias_;                          // accumulator type, as w_ and bias_
};

}  // namespace mt::model
