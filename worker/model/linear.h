// A linear layer: its parameters and the matrix products over them. Several logical matrices (q, k,
// v; gate, up) may lie side by side as one. A layer that adds its own bias is column-parallel
// (outputs are sharded over tensor ranks); one whose bias is added by a ResidualNorm is
// row-parallel (inputs are sharded; Shoeybi et al. 2019, section 3). Legend: T tokens, k inputs, n
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
  // Who adds the bias and sums its gradient: the product itself or, if the output is one of several
  // partial sums of a branch, the ResidualNorm that closes the branch.
  enum class BiasPlace : uint8_t { kGemm, kResidualNorm };

  // One logical matrix [outputs, inputs].
  struct Part {
    std::string name;     // without ".weight": "layers.0.attention.q"
    int64_t outputs = 0;  // over all tensor ranks
  };
  struct Args {
    std::vector<Part> parts;
    int64_t inputs = 0;  // over all tensor ranks
    // The sharded dimension consists of units (heads) of `unit` outputs or inputs, each stored as
    // `stored_unit` of which the rest is zero. All sizes above are logical.
    int64_t unit = 1, stored_unit = 1;
    double std = 0;  // of the initial weights
    bool bias = true;
    BiasPlace bias_place = BiasPlace::kGemm;
    // act_behind: the activation that follows this product (use ForwardAct instead of Forward).
    // act_before: the activation whose output is this product's input (use InputGradAct instead of
    // InputGrad, which also computes the bias gradient of the product in front of the activation;
    // both products have a bias or neither has).
    std::optional<kernels::ActKind> act_behind, act_before;
    int layer = -1;  // as in ParamSpec
  };
  Linear(const GptConfig& config, Args args);

  // Adds all weights, then all biases.
  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  // Reports the workspace of every product of a step.
  void PlanWorkspace(ScratchPlan* plan) const;

  // x [T, k] -> y [T, n].
  void Forward(const Pass& pass, const kernels::Tensor& x, const kernels::Tensor& y) const;
  // x [T, k] -> pre [T, n] and y = act_behind(pre), [T, n] or, for a gated activation, [T, n / 2].
  void ForwardAct(const Pass& pass, const kernels::Tensor& x, const kernels::Tensor& pre,
                  const kernels::Tensor& y) const;
  // dy [T, n] -> dx [T, k].
  void InputGrad(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& dx) const;
  // dy [T, n] and pre, where x = act_before(pre), -> dpre; pre and dpre are [T, k] or, for a gated
  // activation, [T, 2k]. `dbias`: bias_grad() of the layer in front, empty without a bias (CHECK).
  void InputGradAct(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& pre,
                    const kernels::Tensor& dpre, const kernels::Tensor& dbias) const;
  // dy [T, n], x [T, k] -> gradients of the weights and, with kGemm, of the biases, and reports
  // both as done. With act_behind the bias gradient was already computed by InputGradAct.
  void WeightGrad(const Pass& pass, const kernels::Tensor& dy, const kernels::Tensor& x) const;

  // The gradient of the bias, for InputGradAct of the layer behind; empty without a bias.
  const kernels::Tensor& bias_grad() const { return dbias_; }
  // The bias that a ResidualNorm adds; kNone without a bias. Only for a layer with one part and
  // kResidualNorm (CHECK).
  params::ParamId residual_norm_bias() const;

 private:
  bool by_outputs() const { return args_.bias_place == BiasPlace::kGemm; }
  bool adds_bias() const { return args_.bias && by_outputs(); }

  void PlanForward(ScratchPlan* plan, int64_t rows) const;

  const kernels::DType dtype_;
  // For planning: T, and of one call of Forward T, R of a shard, or either.
  const int64_t tokens_;
  const std::vector<int64_t> forward_rows_;
  // The activation is a separate kernel that reads the rounded product, so that recomputing it
  // gives the same bits.
  const bool separate_act_;
  const TensorShard shard_;
  const Args args_;
  const int64_t inputs_, outputs_;                      // k, n, as stored
  std::vector<params::ParamId> weight_ids_, bias_ids_;  // [part]
  kernels::Tensor w_;                                   // [n, k]
  kernels::Tensor bias_;        // [n]; empty with kResidualNorm or without bias
  kernels::Tensor dw_, dbias_;  // accumulator type, as w_ and bias_
};

}  // namespace mt::model
