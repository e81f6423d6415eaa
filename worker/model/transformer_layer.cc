// The order of sub-layers and of tensor parallelism's collectives, forward and backward.
#include "worker/model/transformer_layer.h"

#include <fmt/format.h>

namespace mt::model {

using kernels::Partials;
using kernels::Tensor;

namespace {

bool IsAlone(const Pass& pass) { return pass.tensor == nullptr || pass.tensor->size() == 1; }

// Combines the partial outputs of two branches. On a single rank both are left to the residual
// norm, which adds partials anyway; with several tensor ranks they are added first, so that one
// all-reduce suffices.
Partials Sum(const Pass& pass, const Tensor& a, const Tensor& b) {
  if (IsAlone(pass)) {
    Partials both(a);
    both.tensor[1] = b;
    both.count = 2;
    return both;
  }
  pass.backend->vector().AddTo(*pass.stream, a, b);
  return Partials(pass.Reduce(a));
}

}  // namespace

TransformerLayer::TransformerLayer(const GptConfig& config, int layer)
    : config_(config),
      norm1_(config, fmt::format("layers.{}.norm1", layer), layer),
      attention_(config, layer),
      norm2_(config, fmt::format("layers.{}.norm2", layer), layer),
      mlp_(config, layer) {}

void TransformerLayer::Register(params::Registry* registry, const BranchEnd& incoming) {
  norm1_.SetIncoming(incoming);
  norm1_.Register(registry);
  attention_.Register(registry);
  if (!parallel()) {
    norm2_.SetIncoming(attention_.end());
    norm2_.Register(registry);
  }
  mlp_.Register(registry);
}

void TransformerLayer::Bind(const params::ParamStore& store) {
  norm1_.Bind(store);
  attention_.Bind(store);
  if (!parallel()) norm2_.Bind(store);
  mlp_.Bind(store);
}

void TransformerLayer::TakeKept(size_t slot, memory::StackArena* arena,
                                const Residuals& residuals) {
  if (kept_.size() <= slot) kept_.resize(slot + 1);
  const kernels::Shape rows = {config_.rows(), config_.hidden};
  norm1_.TakeKept(slot, arena, residuals.before);
  if (keeps_norms()) TakeInput(arena, &kept_[slot].y1, &kept_[slot].x1);
  attention_.TakeKept(slot, arena);
  if (!parallel()) {
    norm2_.TakeKept(slot, arena,
                    residuals.middle ? residuals.middle : arena->Take(config_.dtype, rows));
    if (keeps_norms()) TakeInput(arena, &kept_[slot].y2, &kept_[slot].x2);
  }
  mlp_.TakeKept(slot, arena);
}

void TransformerLayer::TakeInput(memory::StackArena* arena, Tensor* y, Tensor* x) const {
  const int64_t rows = config_.rows();
  if (!config_.keeps_inputs()) {
    *y = arena->Take(config_.dtype, {rows, config_.hidden});
    return;
  }
  *x = arena->Take(config_.dtype, {config_.tokens(), config_.hidden});
  *y = x->Rows(config_.shard.rank * rows, rows);
}

void TransformerLayer::TakeScratch(ScratchPlan* plan) {
  const int64_t mark = plan->arena->Mark();
  norm1_.TakeScratch(plan);
  if (!parallel()) norm2_.TakeScratch(plan);
  plan->arena->Release(mark);  // norms have scratch in forward alone, branches in backward
  attention_.TakeScratch(plan);
  plan->arena->Release(mark);
  mlp_.TakeScratch(plan);
  plan->arena->Release(mark);
}

Pending TransformerLayer::Forward(const Pass& pass, size_t slot, const Pending& in,
                                  const Buffers& buffers) const {
  const Tensor x = ForwardAttention(pass, slot, in, buffers, /*attention_out=*/true);
  if (parallel()) {
    mlp_.Forward(pass, slot, x, buffers.second);
    return {.residual = norm1_.residual(slot),
            .partials = Sum(pass, buffers.partial, buffers.second)};
  }
  mlp_.Forward(pass, slot, x, buffers.partial);
  return {.residual = norm2_.residual(slot), .partials = Partials(pass.Reduce(buffers.partial))};
}

void TransformerLayer::ForwardKept(const Pass& pass, size_t slot, const Pending& in,
                                   const Buffers& buffers) const {
  const Tensor x = ForwardAttention(pass, slot, in, buffers, /*attention_out=*/!parallel());
  mlp_.Forward(pass, slot, x, {});
}

Tensor TransformerLayer::ForwardAttention(const Pass& pass, size_t slot, const Pending& in,
                                          const Buffers& buffers, bool attention_out) const {
  const Tensor y1 = keeps_norms() ? kept_[slot].y1 : buffers.y;
  norm1_.Forward(pass, slot, in, y1);
  const Tensor x1 = pass.Gather(y1, config_.keeps_inputs() ? kept_[slot].x1 : buffers.x);
  attention_.Forward(pass, slot, x1, attention_out ? buffers.partial : Tensor());
  if (parallel()) return x1;
  const Tensor y2 = keeps_norms() ? kept_[slot].y2 : buffers.y;
  norm2_.Forward(
      pass, slot,
      {.residual = norm1_.residual(slot), .partials = Partials(pass.Reduce(buffers.partial))}, y2);
  return pass.Gather(y2, config_.keeps_inputs() ? kept_[slot].x2 : buffers.x);
}

// The reduction runs beside the first weight gradient, the next gather beside the second; where
// nothing is gathered, the reduction runs beside both.
template <class Block>
void TransformerLayer::CloseBackward(const Pass& pass, const Block& block, const ResidualNorm& norm,
                                     const OpenBackward& open, BranchGrad* grad) const {
  block.RowWeightGrad(pass, open.slot, open.dbranch);
  if (!open.next) block.ColumnWeightGrad(pass, pass.Finish(open.x));
  Partials dx(pass.Finish(open.dx));
  if (open.second) {
    dx.tensor[1] = open.second;
    dx.count = 2;
  }
  norm.Backward(pass, open.slot, dx, grad);
  if (!open.next) {
    grad->whole = {.result = grad->branch};
    return;
  }
  grad->whole = pass.StartGather(grad->branch, open.next);
  block.ColumnWeightGrad(pass, pass.Finish(open.x));
}

void TransformerLayer::Backward(const Pass& pass, size_t slot, const Buffers& buffers, bool gather,
                                BranchGrad* grad) const {
  if (parallel()) {
    BackwardParallel(pass, slot, buffers, gather, grad);
    return;
  }
  const auto branch = [&](const auto& block, const ResidualNorm& norm, const Tensor& next) {
    OpenBackward open = {.slot = slot, .dbranch = pass.Finish(grad->whole), .next = next};
    open.x = InputAgain(pass, norm, slot, buffers);
    block.InputGrad(pass, slot, open.dbranch, buffers.dnorm);
    open.dx = pass.StartReduce(buffers.dnorm);
    CloseBackward(pass, block, norm, open, grad);
  };
  branch(mlp_, norm2_, buffers.dbranch);
  branch(attention_, norm1_, gather ? buffers.dbranch : Tensor());
}

void TransformerLayer::BackwardParallel(const Pass& pass, size_t slot, const Buffers& buffers,
                                        bool gather, BranchGrad* grad) const {
  OpenBackward open = {.slot = slot,
                       .dbranch = pass.Finish(grad->whole),
                       .next = gather ? buffers.dbranch : Tensor()};
  const PendingCollective x = InputAgain(pass, norm1_, slot, buffers);
  mlp_.InputGrad(pass, slot, open.dbranch, buffers.second);
  mlp_.RowWeightGrad(pass, slot, open.dbranch);
  open.x = {.result = pass.Finish(x)};
  mlp_.ColumnWeightGrad(pass, open.x.result);
  attention_.InputGrad(pass, slot, open.dbranch, buffers.dnorm);
  if (IsAlone(pass)) {
    open.second = buffers.second;
  } else {
    pass.backend->vector().AddTo(*pass.stream, buffers.dnorm, buffers.second);
  }
  open.dx = pass.StartReduce(buffers.dnorm);
  CloseBackward(pass, attention_, norm1_, open, grad);
}

PendingCollective TransformerLayer::InputAgain(const Pass& pass, const ResidualNorm& norm,
                                               size_t slot, const Buffers& buffers) const {
  const Kept& kept = kept_[slot];
  const bool is_first = &norm == &norm1_;
  if (config_.keeps_inputs()) return {.result = is_first ? kept.x1 : kept.x2};
  Tensor y = is_first ? kept.y1 : kept.y2;
  if (!keeps_norms()) {
    y = buffers.y;
    norm.Normalise(pass, slot, y);
  }
  return pass.StartGather(y, buffers.x);
}

BranchEnd TransformerLayer::end() const {
  BranchEnd end = mlp_.end();
  if (parallel()) end.other_bias = attention_.end().bias;
  return end;
}

}  // namespace mt::model
