// The order of sub-layers and of tensor parallelism's collectives, forward and backward.
#include "worker/model/transformer_layer.h"

#include <type_traits>

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
  return pass.Reduce(a);
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
  norm1_.Forward(pass, slot, in, NormOutput(slot, buffers, true));
  if (parallel()) {
    const Tensor x = pass.Gather(NormOutput(slot, buffers, true), Input(slot, buffers, true));
    RunWhole(pass, attention_, slot, x, buffers.partial);
    RunWhole(pass, mlp_, slot, x, buffers.second);
    return {.residual = norm1_.residual(slot),
            .partials = Sum(pass, buffers.partial, buffers.second)};
  }
  RunNorm2(pass, slot, buffers);
  RunColumns(pass, mlp_, slot, buffers);
  return {.residual = norm2_.residual(slot), .partials = RunRows(pass, mlp_, slot, buffers)};
}

void TransformerLayer::ForwardKept(const Pass& pass, size_t slot, const Pending& in,
                                   const Buffers& buffers) const {
  norm1_.Forward(pass, slot, in, NormOutput(slot, buffers, true));
  if (parallel()) {
    const Tensor x = pass.Gather(NormOutput(slot, buffers, true), Input(slot, buffers, true));
    RunWhole(pass, attention_, slot, x, {});
    RunWhole(pass, mlp_, slot, x, {});
    return;
  }
  RunNorm2(pass, slot, buffers);
  RunColumns(pass, mlp_, slot, buffers);
}

void TransformerLayer::RunNorm2(const Pass& pass, size_t slot, const Buffers& buffers) const {
  RunColumns(pass, attention_, slot, buffers);
  attention_.Between(pass, slot);
  norm2_.Forward(
      pass, slot,
      {.residual = norm1_.residual(slot), .partials = RunRows(pass, attention_, slot, buffers)},
      NormOutput(slot, buffers, false));
}

template <class Block>
void TransformerLayer::RunWhole(const Pass& pass, const Block& block, size_t slot, const Tensor& x,
                                const Tensor& partial) const {
  block.ColumnProduct(pass, slot, x, 0);
  block.Between(pass, slot);
  if (partial) block.RowProduct(pass, slot, 0, partial);
}

template <class Block>
void TransformerLayer::RunColumns(const Pass& pass, const Block& block, size_t slot,
                                  const Buffers& buffers) const {
  const bool first = std::is_same_v<Block, AttentionBlock>;
  const Tensor y = NormOutput(slot, buffers, first), x = Input(slot, buffers, first);
  const bool beside = pass.tensor != nullptr && pass.tensor->GathersBesideOwnRows(x);
  if (!config_.shards_products(beside))
    return block.ColumnProduct(pass, slot, pass.Gather(y, x), 0);
  const int64_t rows = config_.rows();
  PendingCollective gather;
  if (beside) {
    gather = pass.StartGather(y, x);
  } else {
    pass.Gather(y, x);
  }
  block.ColumnProduct(pass, slot, y, config_.shard.rank * rows);
  if (beside) pass.Finish(gather);
  for (int64_t i = 1; i < config_.shard.size; ++i) {
    const int64_t shard = (config_.shard.rank + i) % config_.shard.size;
    block.ColumnProduct(pass, slot, x.Rows(shard * rows, rows), shard * rows);
  }
}

template <class Block>
Partials TransformerLayer::RunRows(const Pass& pass, const Block& block, size_t slot,
                                   const Buffers& buffers) const {
  const Tensor& partial = buffers.partial;
  const bool beside = pass.tensor != nullptr && pass.tensor->ReducesBesideOwnRows(partial);
  if (!config_.shards_products(beside)) {
    block.RowProduct(pass, slot, 0, partial);
    return pass.Reduce(partial);
  }
  const int64_t rows = config_.rows();
  const auto run = [&](int64_t shard) {
    block.RowProduct(pass, slot, shard * rows, partial.Rows(shard * rows, rows));
  };
  for (int64_t i = 1; i < config_.shard.size; ++i)
    run((config_.shard.rank + i) % config_.shard.size);
  if (!beside) {
    run(config_.shard.rank);
    return pass.Reduce(partial);
  }
  const PendingCollective sum = pass.StartReduce(partial);
  run(config_.shard.rank);
  return pass.FinishSum(sum);
}

Tensor TransformerLayer::NormOutput(size_t slot, const Buffers& buffers, bool first) const {
  if (!keeps_norms()) return buffers.y;
  return first ? kept_[slot].y1 : kept_[slot].y2;
}

Tensor TransformerLayer::Input(size_t slot, const Buffers& buffers, bool first) const {
  if (!config_.keeps_inputs()) return buffers.x;
  return first ? kept_[slot].x1 : kept_[slot].x2;
}

// The reduction runs beside the first weight gradient, the next gather beside the second; where
// nothing is gathered, the reduction runs beside both.
template <class Block>
void TransformerLayer::CloseBackward(const Pass& pass, const Block& block, const ResidualNorm& norm,
                                     const OpenBackward& open, BranchGrad* grad) const {
  block.RowWeightGrad(pass, open.slot, open.dbranch);
  if (!open.next) block.ColumnWeightGrad(pass, pass.Finish(open.x));
  Partials dx = pass.FinishSum(open.dx);
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
  const bool first = &norm == &norm1_;
  if (config_.keeps_inputs()) return {.result = Input(slot, buffers, first)};
  const Tensor y = NormOutput(slot, buffers, first);
  if (!keeps_norms()) norm.Normalise(pass, slot, y);
  return pass.StartGather(y, buffers.x);
}

BranchEnd TransformerLayer::end() const {
  BranchEnd end = mlp_.end();
  if (parallel()) end.other_bias = attention_.end().bias;
  return end;
}

}  // namespace mt::model
