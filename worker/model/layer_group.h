// Consecutive layers of a chunk that are kept alike: either each layer keeps its activations from
// forward to backward, or only the group's input is kept, and backward runs the group's forward
// again into scratch (Chen et al. 2016; "full" recomputation). The second forward gives the same
// bits: it begins with the same closed residual, and dropout masks depend on keys and positions
// alone. Legend: R rows between matrix products, h hidden.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/model/transformer_layer.h"

namespace mt::model {

class LayerGroup {
 public:
  struct Args {
    int64_t first_layer = 0;  // global number
    int64_t num_layers = 0;   // at least 1
    bool recompute = false;
  };
  LayerGroup(const GptConfig& config, const Args& args);

  void Register(params::Registry* registry, const BranchEnd& incoming);
  void Bind(const params::ParamStore& store);
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan, const TransformerLayer::Buffers& buffers);

  Pending Forward(const Pass& pass, size_t slot, const Pending& in,
                  const TransformerLayer::Buffers& buffers);
  void Backward(const Pass& pass, size_t slot, const TransformerLayer::Buffers& buffers,
                BranchGrad* grad);
  // [R, h]: the group's input, closed; kept per slot. A stage's input may be written here.
  const kernels::Tensor& input(size_t slot) const { return inputs_[slot]; }
  // Valid after Register.
  BranchEnd end() const { return layers_.back()->end(); }

 private:
  // Where the layers keep a slot's activations: recomputed ones share one set.
  size_t SetOf(size_t slot) const { return args_.recompute ? 0 : slot; }
  // The group's forward from its input, for the sake of what its layers keep.
  void RunAgain(const Pass& pass, size_t slot, const TransformerLayer::Buffers& buffers);
  // `last` [R, h]: where the last layer leaves the residual that the next one adds to, which must
  // outlive the set; absent: in the arena.
  void TakeLayers(size_t set, memory::StackArena* arena, const kernels::Tensor& input,
                  const kernels::Tensor& last);

  const GptConfig config_;
  const Args args_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::vector<kernels::Tensor> inputs_;  // by slot
};

// The groups of a chunk's layers, as config.recompute asks (Megatron-LM's methods): uniform cuts
// the chunk into groups of `layers` layers, the last may be smaller; block recomputes the first
// `layers` layers one by one and keeps the others.
std::vector<LayerGroup::Args> GroupsOf(const Recompute& recompute, int64_t first_layer,
                                       int64_t num_layers);

}  // namespace mt::model
