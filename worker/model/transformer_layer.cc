// Order of the sub-layers.
#include "worker/model/transformer_layer.h"

#include <fmt/format.h>

namespace mt::model {

TransformerLayer::TransformerLayer(const GptConfig& config, int layer)
    : norm1_(config, fmt::format("layers.{}.norm1", layer), layer),
      attention_(config, layer),
      norm2_(config, fmt::format("layers.{}.norm2", layer), layer),
      mlp_(config, layer) {}

void TransformerLayer::Register(params::Registry* registry, const BranchEnd& incoming) {
  norm1_.SetIncoming(incoming);
  norm1_.Register(registry);
  attention_.Register(registry);
  norm2_.SetIncoming(attention_.end());
  norm2_.Register(registry);
  mlp_.Register(registry);
}

void TransformerLayer::Bind(const params::ParamStore& store) {
  norm1_.Bind(store);
  attention_.Bind(store);
  norm2_.Bind(store);
  mlp_.Bind(store);
}

void TransformerLayer::TakeKept(size_t slot, memory::StackArena* arena) {
  norm1_.TakeKept(slot, arena);
  attention_.TakeKept(slot, arena);
  norm2_.TakeKept(slot, arena);
  mlp_.TakeKept(slot, arena);
}

void TransformerLayer::TakeScratch(ScratchPlan* plan) {
  norm1_.PlanWorkspace(plan);
  norm2_.PlanWorkspace(plan);
  const int64_t mark = plan->arena->Mark();
  attention_.TakeScratch(plan);
  plan->arena->Release(mark);  // the branches' backwards never overlap
  mlp_.TakeScratch(plan);
  plan->arena->Release(mark);
}

Pending TransformerLayer::Forward(const Pass& pass, size_t slot, const Pending& in,
                                  const Buffers& buffers) {
  norm1_.Forward(pass, slot, in);
  attention_.Forward(pass, slot, norm1_.output(slot), buffers.partial);
  norm2_.Forward(
      pass, slot,
      {.residual = norm1_.residual(slot), .partials = kernels::Partials(buffers.partial)});
  mlp_.Forward(pass, slot, norm2_.output(slot), buffers.partial);
  return {.residual = norm2_.residual(slot), .partials = kernels::Partials(buffers.partial)};
}

void TransformerLayer::Backward(const Pass& pass, size_t slot, const Buffers& buffers,
                                BranchGrad* grad) const {
  mlp_.Backward(pass, slot, norm2_.output(slot), grad->branch, buffers.dnorm);
  norm2_.Backward(pass, slot, buffers.dnorm, grad);
  attention_.Backward(pass, slot, norm1_.output(slot), grad->branch, buffers.dnorm);
  norm1_.Backward(pass, slot, buffers.dnorm, grad);
}

}  // namespace mt::model
