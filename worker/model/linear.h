// A linear layer of the network: its parameters and the products over them. Several logical
// matrices (q, k, v; gate, up) may lie side by side as one. A layer that adds its own bias is cut
// by outputs over the tensor ranks, each part for itself (column-parallel), one whose bias the
// Border adds by inputs (row-parallel, Shoeybi et al. 2019 §3). Legend: T tokens, k inputs, n
// outputs of all parts together, both of this rank and as stored.
#pragma once

#include <optional>
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

  struct Part {
    std::string name;     // without ".weight": "layers.0.attention.q"
    int64_t outputs = 0;  // of all tensor ranks
  };
  struct Args {
    std::vector<Part> parts;
    int64_t inputs = 0;  // of all tensor ranks
    // The dimension that the ranks cut comes in units (heads) of so many outputs or inputs, each
    // stored as `stored_unit`, the rest zero. The sizes above are logical.
    int64_t unit = 1, stored_unit = 1;
    double std = 0;  // of initial weights
    bool bias = true;
    BiasPlace bias_place = BiasPlace::kProduct;
    // The activation behind this product (ForwardAct instead of Forward), and the one whose output
    // is this product's input (InputGradAct instead of InputGrad, which sums the bias gradient of
    // the product in front of the activation; both have a bias or neither).
    std::optional<kernels::ActKind> act_behind, act_before;
    int layer = -1;
  };
  Linear(const GptConfig& config, Args args);

  // All weights, then all biases.
  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  void PlanWorkspace(ScratchPlan* plan) const;

  // x [T, k] -> y [T, n].
  void Forward(const Pass& pass, const kernels::Tensor& x, const kernels::Tensor& y) const;
  // x [T, k] -> pre [T, n], y = act_behind(pre) [T, n], of a gated one [T, n / 2].
  void ForwardAct(const Pass& pass, const kernels::Tensor& x, const kernels::Tensor& pre,
                  const kernels::Tensor& y) const;
  // dy [T, n] -> dx [T, k].
  void InputGrad(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& dx) const;
  // dy [T, n], pre with x = act_before(pre) -> dpre, both [T, k] or, of a gated one, [T, 2k].
  // dbias: bias_grad() of the layer in front.
  void InputGradAct(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& pre,
                    const kernels::Tensor& dpre, const kernels::Tensor& dbias) const;
  // dy [T, n], x [T, k] -> gradients of weights and, with kProduct, biases, except with act_behind,
  // where InputGradAct came before; reports both done.
  void WeightGrad(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& x) const;

  // Of a layer with act_behind: what InputGradAct of the layer behind fills; absent without a bias.
  const kernels::Tensor& bias_grad() const { return dbias_; }
  // Of a layer with one part and kBorder; kNone without a bias.
  params::ParamId border_bias() const;

 private:
  bool by_outputs() const { return args_.bias_place == BiasPlace::kProduct; }
  bool adds_bias() const { return args_.bias && by_outputs(); }

  const kernels::DType dtype_;
  const int64_t tokens_;  // T, for planning
  // The activation reads the rounded product, forward as when it is computed again.
  const bool separate_act_;
  const TensorShard shard_;
  const Args args_;
  const int64_t inputs_, outputs_;                      // k, n, as stored
  std::vector<params::ParamId> weight_ids_, bias_ids_;  // by part
  kernels::Tensor w_;                                   // [n, k]
  kernels::Tensor bias_;                                // [n]; absent with kBorder or without bias
  kernels::Tensor dw_, dbias_;                          // accumulator type, as w_ and bias_
};

}  // namespace mt::model
