// Per chunk of rows: logits, loss with gradient in place, input gradient, weight gradient. The
// vocabulary parallel loss gathers (max, sum of exponentials, label's logit) of every token.
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

Head::Head(const GptConfig& config, const VocabMatrix* vocab_matrix, int64_t chunk_tokens,
           bool reports_gradient)
    : config_(config),
      vocab_matrix_(vocab_matrix),
      chunk_(std::min(chunk_tokens, config.tokens())),
      reports_gradient_(reports_gradient),
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
  dresidual_[slot] = arena->Take(config_.dtype, {config_.rows(), config_.hidden});
}

void Head::TakeScratch(ScratchPlan* plan) {
  const kernels::Shape rows = {config_.rows(), config_.hidden};
  norm_.TakeKept(0, plan->arena, plan->arena->Take(config_.dtype, rows));
  y_ = plan->arena->Take(config_.dtype, rows);
  logits_ = plan->arena->Take(config_.dtype, {chunk_, config_.local_vocab()});
  stats_ =
      plan->arena->Take(kernels::AccumulatorOf(config_.dtype), {config_.shard.size * chunk_ * 3});
  norm_.TakeScratch(plan);
  PlanWorkspace(plan);
}

void Head::PlanWorkspace(ScratchPlan* plan) const {
  const int64_t tokens = config_.tokens();
  PlanChunk(plan, chunk_, /*first=*/true);
  if (tokens >= 2 * chunk_) PlanChunk(plan, chunk_, /*first=*/false);
  if (tokens % chunk_ != 0) PlanChunk(plan, tokens % chunk_, /*first=*/false);
}

void Head::PlanChunk(ScratchPlan* plan, int64_t rows, bool first) const {
  kernels::LinearOps& ops = plan->pass->backend->linear();
  const Tensor w = Placeholder(config_.dtype, {config_.local_vocab(), config_.hidden});
  const Tensor x = Placeholder(config_.dtype, {rows, config_.hidden});
  const Tensor y = Placeholder(config_.dtype, {rows, config_.local_vocab()});
  plan->NeedWorkspace(ops.Plan(kernels::LinearForwardArgs{.x = x, .w = w, .y = y}));
  plan->NeedWorkspace(ops.Plan(kernels::LinearInputGradArgs{.dy = y, .w = w, .dx = x}));
  kernels::LinearWeightGradArgs weight_grad = {
      .dy = y, .x = x, .dw = Placeholder(kernels::AccumulatorOf(config_.dtype), w.shape)};
  if (first) plan->NeedWorkspace(ops.Plan(weight_grad));
  if (first && !plan->accumulates) return;
  weight_grad.mode = kernels::GradMode::kAdd;
  plan->NeedWorkspace(ops.Plan(weight_grad));
}

template <class InputDone>
void Head::Chunk(const Pass& pass, const Rows& rows, const LossArgs& loss,
                 const InputDone& input_done) const {
  const kernels::LinearOps& linear = pass.backend->linear();
  const Tensor logits = logits_.Rows(0, rows.count);
  linear.Forward(
      *pass.stream,
      {.x = rows.x, .w = vocab_matrix_->weight(), .y = logits, .workspace = pass.workspace});
  Loss(pass, rows, loss, logits);
  if (!pass.training) return;
  linear.InputGrad(
      *pass.stream,
      {.dy = logits, .w = vocab_matrix_->weight(), .dx = rows.dx, .workspace = pass.workspace});
  input_done();
  linear.WeightGrad(*pass.stream, {.dy = logits,
                                   .x = rows.x,
                                   .mode = rows.begin == 0 ? pass.mode : kernels::GradMode::kAdd,
                                   .dw = vocab_matrix_->grad(),
                                   .workspace = pass.workspace});
}

void Head::Forward(const Pass& pass, size_t slot, const Pending& in, const LossArgs& loss,
                   const Buffers& buffers) {
  norm_.Forward(pass, 0, in, y_);
  const Tensor x = pass.Gather(y_, buffers.x);
  PendingCollective dx;
  for (int64_t begin = 0; begin < config_.tokens(); begin += chunk_) {
    const int64_t count = std::min(chunk_, config_.tokens() - begin);
    const Rows rows = {.begin = begin,
                       .count = count,
                       .x = x.Rows(begin, count),
                       .dx = buffers.dx.Rows(begin, count)};
    Chunk(pass, rows, loss, [&] {
      if (begin + count == config_.tokens()) dx = pass.StartReduce(buffers.dx);
    });
  }
  if (!pass.training) return;
  if (reports_gradient_) pass.Done(vocab_matrix_->id());
  norm_.BackwardNorm(pass, 0, pass.FinishSum(dx), dresidual_[slot]);
}

void Head::Loss(const Pass& pass, const Rows& rows, const LossArgs& loss,
                const Tensor& logits) const {
  const int64_t shards = config_.shard.size;
  const int64_t elements = rows.count * 3;
  const Tensor stats = Slice(stats_, 0, shards * elements);
  const kernels::LossFinishArgs args = {
      .logits = logits,
      .labels = Slice(pass.batch->labels, rows.begin, rows.count),
      .first_column = vocab_matrix_->first_row(),
      .real_columns = config_.vocab,
      .stats = stats.Reshaped({shards, rows.count, 3}),
      .weight = Slice(pass.batch->weights, rows.begin, rows.count),
      .seed = loss.seed,
      .loss_scale = loss.loss_scale,
      .write_gradient = pass.training,
      .sums = loss.sums};
  if (shards == 1) {
    pass.backend->loss().StatsFinish(*pass.stream, args);
    return;
  }
  const Tensor own = Slice(stats, config_.shard.rank * elements, elements);
  pass.backend->loss().Stats(*pass.stream, {.logits = logits,
                                            .labels = args.labels,
                                            .first_column = args.first_column,
                                            .real_columns = args.real_columns,
                                            .stats = own.Reshaped({rows.count, 3})});
  pass.tensor->AllGather(*pass.stream, own, stats);
  pass.backend->loss().Finish(*pass.stream, args);
}

}  // namespace mt::model
