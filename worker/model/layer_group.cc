// Recomputed groups take their activations from the scratch arena, one set for all slots, and point
// their first layer at the slot's input before each run.
#include "worker/model/layer_group.h"

#include <algorithm>

#include "common/base/check.h"

namespace mt::model {

using kernels::Tensor;

LayerGroup::LayerGroup(const GptConfig& config, const Args& args) : config_(config), args_(args) {
  CHECK_GT(args.num_layers, 0);
  for (int64_t i = 0; i < args.num_layers; ++i) {
    layers_.push_back(
        std::make_unique<TransformerLayer>(config, static_cast<int>(args.first_layer + i)));
  }
}

void LayerGroup::Register(params::Registry* registry, const BranchEnd& incoming) {
  BranchEnd end = incoming;
  for (const auto& layer : layers_) {
    layer->Register(registry, end);
    end = layer->end();
  }
}

void LayerGroup::Bind(const params::ParamStore& store) {
  for (const auto& layer : layers_) layer->Bind(store);
}

void LayerGroup::TakeKept(size_t slot, memory::StackArena* arena) {
  if (inputs_.size() <= slot) inputs_.resize(slot + 1);
  inputs_[slot] = arena->Take(config_.dtype, {config_.rows(), config_.hidden});
  if (!args_.recompute) TakeLayers(slot, arena, inputs_[slot], {});
}

void LayerGroup::TakeLayers(size_t set, memory::StackArena* arena, const Tensor& input,
                            const Tensor& last) {
  for (const auto& layer : layers_) {
    const Tensor kept_on = layer == layers_.back() ? last : Tensor();
    TransformerLayer::Residuals residuals = {.before = input, .middle = kept_on};
    if (layer != layers_.front()) {
      // A parallel residual has no middle: the layer leaves the residual that it was given.
      residuals.before =
          config_.parallel_residual && kept_on ? kept_on : arena->Take(config_.dtype, input.shape);
    }
    layer->TakeKept(set, arena, residuals);
  }
}

void LayerGroup::TakeScratch(ScratchPlan* plan, const TransformerLayer::Buffers& buffers) {
  const int64_t mark = plan->arena->Mark();
  if (args_.recompute) TakeLayers(0, plan->arena, inputs_.front(), buffers.carry);
  for (const auto& layer : layers_) layer->TakeScratch(plan);
  plan->arena->Release(mark);
}

Pending LayerGroup::Forward(const Pass& pass, size_t slot, const Pending& in,
                            const TransformerLayer::Buffers& buffers) {
  const size_t set = SetOf(slot);
  layers_.front()->SetInput(set, inputs_[slot]);
  Pending open = in;
  for (size_t i = 0; i < layers_.size(); ++i) {
    pass.BeginLayer(args_.first_layer + static_cast<int64_t>(i));
    open = layers_[i]->Forward(pass, set, open, buffers);
  }
  return open;
}

void LayerGroup::RunAgain(const Pass& pass, size_t slot, const TransformerLayer::Buffers& buffers) {
  const size_t set = SetOf(slot);
  layers_.front()->SetInput(set, inputs_[slot]);
  Pending open = {.residual = inputs_[slot], .partials = {}};
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    open = layers_[i]->Forward(pass, set, open, buffers);
  }
  layers_.back()->ForwardKept(pass, set, open, buffers);
}

void LayerGroup::Backward(const Pass& pass, size_t slot, const TransformerLayer::Buffers& buffers,
                          bool gather, BranchGrad* grad) {
  if (args_.recompute) {
    // No gather is pending while the forward makes its own.
    grad->whole = {.result = pass.Finish(grad->whole)};
    RunAgain(pass, slot, buffers);
  }
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    (*layer)->Backward(pass, SetOf(slot), buffers, gather || *layer != layers_.front(), grad);
  }
}

std::vector<LayerGroup::Args> GroupsOf(const Recompute& recompute, int64_t first_layer,
                                       int64_t num_layers) {
  std::vector<LayerGroup::Args> groups;
  const bool full = recompute.mode == RecomputeMode::kFull;
  const bool uniform = full && recompute.method == RecomputeMethod::kUniform;
  int64_t recomputed = 0;
  if (full) recomputed = uniform ? num_layers : std::min(recompute.layers, num_layers);
  const int64_t size = uniform ? recompute.layers : 1;
  for (int64_t at = 0; at < recomputed; at += size) {
    groups.push_back({.first_layer = first_layer + at,
                      .num_layers = std::min(size, recomputed - at),
                      .recompute = true});
  }
  if (recomputed < num_layers) {
    groups.push_back(
        {.first_layer = first_layer + recomputed, .num_layers = num_layers - recomputed});
  }
  return groups;
}

}  // namespace mt::model
