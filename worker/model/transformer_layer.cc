// The order of sub-layers and of tensor parallelism's collectives, forward and backward.
#include "worker/model/transformer_layer.h"

#include <fmt/format.h>

namespace mt::model {

using kernels::Partials;
using kernels::Tensor;

namespace {

// Combines the partial outputs of two branches. On a single rank both are left to the residual
// norm, which adds partials anyway; with several tensor ranks they are added first, so that one
// all-reduce suffices.
Partials Sum(const Pass& pass, const Tensor& a, const Tensor& b) {
  if (pass.tensor == nullptr || pass.tensor->size() == 1) {
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
  if (keeps_norms()) kept_[slot].y1 = arena->Take(config_.dtype, rows);
  attention_.TakeKept(slot, arena);
  if (!parallel()) {
    norm2_.TakeKept(slot, arena,
                    residuals.middle ? residuals.middle : arena->Take(config_.dtype, rows));
    if (keeps_norms()) kept_[slot].y2 = arena->Take(config_.dtype, rows);
  }
  mlp_.TakeKept(slot, arena);
}

void TransformerLayer::TakeScratch(ScratchPlan* plan) {
  const int64_t mark = plan->arena->Mark();
  norm1_.TakeScratch(plan);
  if (!parallel()) norm2_.TakeScratch(plan);
  plan->arena->Release(mark);  // norms and branch backwards never run at the same time
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
  const Tensor x1 = pass.Gather(y1, buffers.x);
  attention_.Forward(pass, slot, x1, attention_out ? buffers.partial : Tensor());
  if (parallel()) return x1;
  const Tensor y2 = keeps_norms() ? kept_[slot].y2 : buffers.y;
  norm2_.Forward(
      pass, slot,
      {.residual = norm1_.residual(slot), .partials = Partials(pass.Reduce(buffers.partial))}, y2);
  return pass.Gather(y2, buffers.x);
}

void TransformerLayer::Backward(const Pass& pass, size_t slot, const Buffers& buffers,
                                BranchGrad* grad) const {
  if (parallel()) {
    BackwardParallel(pass, slot, buffers, grad);
    return;
  }
  // Each branch waits for its output's gradient; the gather of its input and the reduction of its
  // input's gradient run beside products.
  const Tensor dmlp = pass.Gather(grad->branch, buffers.dbranch);
  const Tensor x2 = InputAgain(pass, norm2_, slot, buffers);
  mlp_.Backward(pass, slot, x2, dmlp, buffers.dnorm, /*reduce=*/true);
  norm2_.Backward(pass, slot, Partials(pass.FinishReduce(buffers.dnorm)), grad);
  const Tensor dattention = pass.Gather(grad->branch, buffers.dbranch);
  const Tensor x1 = InputAgain(pass, norm1_, slot, buffers);
  attention_.Backward(pass, slot, x1, dattention, buffers.dnorm, /*reduce=*/true);
  norm1_.Backward(pass, slot, Partials(pass.FinishReduce(buffers.dnorm)), grad);
}

void TransformerLayer::BackwardParallel(const Pass& pass, size_t slot, const Buffers& buffers,
                                        BranchGrad* grad) const {
  const Tensor dbranch = pass.Gather(grad->branch, buffers.dbranch);
  const Tensor x = InputAgain(pass, norm1_, slot, buffers);
  mlp_.Backward(pass, slot, x, dbranch, buffers.second, /*reduce=*/false);
  attention_.Backward(pass, slot, x, dbranch, buffers.dnorm, /*reduce=*/false);
  norm1_.Backward(pass, slot, Sum(pass, buffers.dnorm, buffers.second), grad);
}

Tensor TransformerLayer::InputAgain(const Pass& pass, const ResidualNorm& norm, size_t slot,
                                    const Buffers& buffers) const {
  const Kept& kept = kept_[slot];
  Tensor y = &norm == &norm1_ ? kept.y1 : kept.y2;
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
