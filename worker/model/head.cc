// Chunked logits, loss and their gradients.
#include "worker/model/head.h"

#include <algorithm>

#include "common/base/check.h"

namespace mt::model {
namespace {

using kernels::Tensor;

// Elements [begin, begin + count) of a vector.
Tensor Slice(const Tensor& vector, int64_t begin, int64_t count) {
  return {static_cast<char*>(vector.data) + begin * SizeOf(vector.dtype), vector.dtype, {count}};
}

}  // namespace

Head::Head(const GptConfig& config, const WordTable* words, int64_t chunk_tokens)
    : config_(config),
      words_(words),
      chunk_(std::min(chunk_tokens, config.tokens())),
      norm_(config, "final_norm", -1) {
  CHECK_GT(chunk_, 0);
}

void Head::Register(params::Registry* registry, const BranchEnd& incoming) {
  norm_.SetIncoming(incoming);
  norm_.Register(registry);
}

void Head::Bind(const params::ParamStore& store) { norm_.Bind(store); }

void Head::TakeKept(size_t slot, memory::StackArena* arena) {
  if (dresidual_.size() <= slot) dresidual_.resize(slot + 1);
  dresidual_[slot] = arena->Take(config_.dtype, {config_.tokens(), config_.hidden});
}

void Head::TakeScratch(ScratchPlan* plan) {
  norm_.TakeKept(0, plan->arena);
  logits_ = plan->arena->Take(config_.dtype, {chunk_, config_.padded_vocab});
  stats_ = plan->arena->Take(kernels::AccumulatorOf(config_.dtype), {chunk_ * 3});
  norm_.PlanWorkspace(plan);
  PlanWorkspace(plan);
}

void Head::PlanWorkspace(ScratchPlan* plan) const {
  const kernels::LinearOps& ops = plan->pass->backend->linear();
  const Tensor w = Placeholder(config_.dtype, {config_.padded_vocab, config_.hidden});
  const Tensor dw = Placeholder(kernels::AccumulatorOf(config_.dtype), w.shape);
  for (const int64_t rows : {chunk_, config_.tokens() % chunk_}) {
    if (rows == 0) continue;
    const Tensor x = Placeholder(config_.dtype, {rows, config_.hidden});
    const Tensor y = Placeholder(config_.dtype, {rows, config_.padded_vocab});
    plan->NeedWorkspace(ops.WorkspaceBytes(kernels::LinearForwardArgs{.x = x, .w = w, .y = y}));
    plan->NeedWorkspace(ops.WorkspaceBytes(kernels::LinearInputGradArgs{.dy = y, .w = w, .dx = x}));
    plan->NeedWorkspace(
        ops.WorkspaceBytes(kernels::LinearWeightGradArgs{.dy = y, .x = x, .dw = dw}));
  }
}

void Head::Forward(const Pass& pass, size_t slot, const Pending& in, const LossArgs& loss,
                   const Tensor& dnorm) {
  norm_.Forward(pass, 0, in);
  for (int64_t begin = 0; begin < config_.tokens(); begin += chunk_) {
    Chunk(pass, begin, std::min(chunk_, config_.tokens() - begin), loss, dnorm);
  }
  if (pass.training) norm_.BackwardNorm(pass, 0, dnorm, dresidual_[slot]);
}

void Head::Chunk(const Pass& pass, int64_t begin, int64_t count, const LossArgs& loss,
                 const Tensor& dnorm) const {
  const kernels::LinearOps& linear = pass.backend->linear();
  const Tensor x = norm_.output(0).Rows(begin, count);
  const Tensor logits = logits_.Rows(0, count);
  linear.Forward(*pass.stream,
                 {.x = x, .w = words_->weight(), .y = logits, .workspace = pass.workspace});
  pass.backend->loss().StatsFinish(*pass.stream,
                                   {.logits = logits,
                                    .labels = Slice(pass.batch->labels, begin, count),
                                    .first_column = 0,
                                    .real_columns = config_.vocab,
                                    .stats = Slice(stats_, 0, count * 3).Reshaped({1, count, 3}),
                                    .weight = Slice(pass.batch->weights, begin, count),
                                    .seed = loss.seed,
                                    .loss_scale = loss.loss_scale,
                                    .write_gradient = pass.training,
                                    .sums = loss.sums});
  if (!pass.training) return;
  linear.InputGrad(*pass.stream, {.dy = logits,
                                  .w = words_->weight(),
                                  .dx = dnorm.Rows(begin, count),
                                  .workspace = pass.workspace});
  linear.WeightGrad(*pass.stream, {.dy = logits,
                                   .x = x,
                                   .mode = begin == 0 ? pass.mode : kernels::GradMode::kAdd,
                                   .dw = words_->grad(),
                                   .workspace = pass.workspace});
}

}  // namespace mt::model
