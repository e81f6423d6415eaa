// Composes embedding, layer groups and head, and lays out what the stage keeps and its scratch.
#include "worker/model/stage.h"

#include "common/base/check.h"

namespace mt::model {

using kernels::Partials;
using kernels::Tensor;

Stage::Stage(const GptConfig& config, const Args& args)
    : config_(config),
      args_(args),
      word_embedding_(config,
                      {.name = "embedding.word.weight", .copy = args.head && !args.embedding}),
      // As if behind the last layer, because its gradient is complete before those of the layers.
      head_matrix_(config, {.name = "head.weight",
                            .region = params::Region::kMatrix,
                            .layer = static_cast<int>(config.layers)}),
      tail_(config, "", -1) {
  CHECK(args.first_layer >= 0 && args.num_layers >= 0 &&
        args.first_layer + args.num_layers <= config.layers)
      << "layers " << args.first_layer << " + " << args.num_layers << " of " << config.layers;
  CHECK_GT(args.slots, size_t{0});
  const bool tied_here = args.head && config.tie_embeddings;
  if (args.embedding) embedding_.emplace(config, &word_embedding_, /*zero_gradient=*/!tied_here);
  for (const LayerGroup::Args& group :
       GroupsOf(config.recompute, args.first_layer, args.num_layers)) {
    groups_.push_back(std::make_unique<LayerGroup>(config, group));
  }
  if (args.head) {
    head_.emplace(config, config.tie_embeddings ? &word_embedding_ : &head_matrix_,
                  args.head_chunk_tokens,
                  /*reports_gradient=*/!config.tie_embeddings || !args.embedding);
  }
}

void Stage::Register(params::Registry* registry) {
  if (has_word_embedding()) word_embedding_.Register(registry);
  BranchEnd end;
  if (embedding_) {
    embedding_->Register(registry);
    end = embedding_->end();
  }
  for (const auto& group : groups_) {
    group->Register(registry, end);
    end = group->end();
  }
  if (head_) {
    head_->Register(registry, end);
    if (!config_.tie_embeddings) head_matrix_.Register(registry);
  }
  tail_.SetIncoming(end);
}

void Stage::Bind(const params::ParamStore& store) {
  if (has_word_embedding()) word_embedding_.Bind(store);
  if (embedding_) embedding_->Bind(store);
  for (const auto& group : groups_) group->Bind(store);
  if (head_) {
    head_->Bind(store);
    if (!config_.tie_embeddings) head_matrix_.Bind(store);
  }
  tail_.Bind(store);
}

void Stage::TakeKept(memory::StackArena* arena) {
  boundaries_.resize(args_.slots);
  for (size_t slot = 0; slot < args_.slots; ++slot) {
    for (const auto& group : groups_) group->TakeKept(slot, arena);
    if (head_) head_->TakeKept(slot, arena);
    TakeBoundary(slot, arena);
  }
}

void Stage::TakeBoundary(size_t slot, memory::StackArena* arena) {
  const auto take = [&] { return arena->Take(config_.dtype, {config_.rows(), config_.hidden}); };
  ChunkBoundary& at = boundaries_[slot];
  if (starts_inside()) {
    at.input = has_layers() ? groups_.front()->input(slot) : take();
    // A head without layers writes the gradient that it has to send back there.
    at.input_grad = head_ && !has_layers() ? head_->dresidual(slot) : take();
  }
  if (!ends_inside()) return;
  if (passes_on()) {
    at.output = at.input;
    at.output_grad = at.input_grad;
    return;
  }
  at.output = take();
  at.output_grad = take();
  tail_.TakeKept(slot, arena, at.output);
}

void Stage::TakeScratch(ScratchPlan* plan) {
  if (passes_on()) return;
  memory::StackArena* arena = plan->arena;
  const kernels::Shape rows = {config_.rows(), config_.hidden};
  const kernels::Shape whole = {config_.tokens(), config_.hidden};
  if (embedding_) grad_.residual = arena->Take(config_.dtype, rows);
  if (kernels::MakeDropoutRate(config_.hidden_dropout).active()) {
    grad_.branch = arena->Take(config_.dtype, rows);
  }
  // ResidualNorm reads an open branch before anything writes the gradient of a norm's output, so
  // both share a buffer.
  buffers_.partial = buffers_.dnorm = arena->Take(config_.dtype, whole);
  if (config_.parallel_residual) buffers_.second = arena->Take(config_.dtype, whole);
  if (config_.recompute.mode == RecomputeMode::kSelective) {
    buffers_.y = arena->Take(config_.dtype, rows);
  }
  if (config_.recompute.mode == RecomputeMode::kFull) {
    buffers_.carry = arena->Take(config_.dtype, rows);
  }
  if (config_.shard.cuts_rows()) {
    if (head_ || !config_.keeps_inputs()) buffers_.x = arena->Take(config_.dtype, whole);
    buffers_.dbranch = arena->Take(config_.dtype, whole);
  }
  const int64_t mark = arena->Mark();
  for (const auto& group : groups_) group->TakeScratch(plan, buffers_);
  if (head_) head_->TakeScratch(plan);
  arena->Release(mark);
  tail_.TakeScratch(plan);
}

void Stage::Forward(const Pass& pass, size_t slot, const LossArgs& loss) {
  if (passes_on()) return;
  Pending open;
  if (embedding_) {
    open.partials = embedding_->Forward(pass, buffers_.partial);
  } else {
    open.residual = input(slot);
  }
  for (const auto& group : groups_) open = group->Forward(pass, slot, open, buffers_);
  if (head_) {
    pass.BeginLayer(config_.layers);
    head_->Forward(pass, slot, open, loss, {.x = buffers_.x, .dx = buffers_.dnorm});
  } else {
    tail_.Forward(pass, slot, open, {});
  }
}

void Stage::Backward(const Pass& pass, size_t slot) {
  CHECK(pass.training);
  if (!has_layers() && starts_inside()) return;  // forward has written input_grad
  BranchGrad grad = GradOf(slot);
  tail_.BackwardBranch(pass, head_ ? head_->dresidual(slot) : output_grad(slot), &grad);
  grad.whole = pass.StartGather(grad.branch, buffers_.dbranch);
  for (auto group = groups_.rbegin(); group != groups_.rend(); ++group) {
    const bool gather = !starts_inside() || *group != groups_.front();
    (*group)->Backward(pass, slot, buffers_, gather, &grad);
  }
  if (embedding_) embedding_->Backward(pass, grad.whole);
}

BranchGrad Stage::GradOf(size_t slot) const {
  BranchGrad grad;
  grad.residual = starts_inside() ? input_grad(slot) : grad_.residual;
  grad.branch = grad_.branch ? grad_.branch : grad.residual;
  return grad;
}

}  // namespace mt::model
