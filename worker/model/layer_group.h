// Consecutive layers of a chunk that are treated alike: either each layer keeps its activations
// from forward to backward, or only the group's input is kept and backward repeats the group's
// forward into scratch (Chen et al. 2016; "full" recomputation). The second forward gives the same
// bits, because it begins with the same closed residual and dropout masks depend on keys and
// positions alone. Legend: R rows between matrix products, h hidden.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/model/transformer_layer.h"

namespace mt::model {

class LayerGroup {
 public:
  struct Args {
    int64_t first_layer = 0;  // global layer number
    int64_t num_layers = 0;   // >= 1 (CHECK)
    bool recompute = false;
  };
  LayerGroup(const GptConfig& config, const Args& args);

  void Register(params::Registry* registry, const BranchEnd& incoming);
  void Bind(const params::ParamStore& store);
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan, const TransformerLayer::Buffers& buffers);

  // Runs all layers. Takes an open branch and returns the last layer's.
  Pending Forward(const Pass& pass, size_t slot, const Pending& in,
                  const TransformerLayer::Buffers& buffers);
  // Recomputes the activations if necessary, then runs all layers backward. `grad`: of the returned
  // Pending on entry, of `in` on return. `gather`: as TransformerLayer::Backward.
  void Backward(const Pass& pass, size_t slot, const TransformerLayer::Buffers& buffers,
                bool gather, BranchGrad* grad);
  // The group's input [R, h], a closed residual, kept per slot. A stage's input may be written here
  // directly.
  const kernels::Tensor& input(size_t slot) const { return inputs_[slot]; }
  // Valid after Register.
  BranchEnd end() const { return layers_.back()->end(); }

 private:
  // Index of the set of activations that a slot uses; all recomputed slots share set 0.
  size_t SetOf(size_t slot) const { return args_.recompute ? 0 : slot; }
  // Repeats the group's forward from its input, to restore what its layers keep.
  void RunAgain(const Pass& pass, size_t slot, const TransformerLayer::Buffers& buffers);
  // Takes the layers' kept tensors. `last` [R, h]: where the last layer stores the residual that
  // the next layer adds to, which must outlive the set; empty: taken from the arena.
  void TakeLayers(size_t set, memory::StackArena* arena, const kernels::Tensor& input,
                  const kernels::Tensor& last);

  const GptConfig config_;
  const Args args_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::vector<kernels::Tensor> inputs_;  // [slot]
};

// Divides a chunk's layers into groups as config.recompute demands (Megatron-LM's methods): uniform
// makes groups of `layers` layers, the last may be smaller; block recomputes the first `layers`
// layers one by one and keeps the others.
std::vector<LayerGroup::Args> GroupsOf(const Recompute& recompute, int64_t first_layer,
                                       int64_t num_layers);

}  // namespace mt::model
