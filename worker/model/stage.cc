// Composition of a stage, and the layout of what it keeps and of its scratch.
#include "worker/model/stage.h"

#include "common/base/check.h"

namespace mt::model {

using kernels::Tensor;

Stage::Stage(const GptConfig& config, const Args& args)
    : config_(config), args_(args), words_(config), tail_(config, "", -1) {
  CHECK(args.first_layer >= 0 && args.num_layers > 0 &&
        args.first_layer + args.num_layers <= config.layers)
      << "layers " << args.first_layer << " + " << args.num_layers << " of " << config.layers;
  CHECK_GT(args.slots, size_t{0});
  if (args.embedding) embedding_.emplace(config, &words_, /*zero_words=*/!args.head);
  for (int64_t i = 0; i < args.num_layers; ++i) {
    layers_.push_back(
        std::make_unique<TransformerLayer>(config, static_cast<int>(args.first_layer + i)));
  }
  if (args.head) head_.emplace(config, &words_, args.head_chunk_tokens);
}

void Stage::Register(params::Registry* registry) {
  if (embedding_ || head_) words_.Register(registry);
  BranchEnd end;
  if (embedding_) {
    embedding_->Register(registry);
    end = embedding_->end();
  }
  for (const auto& layer : layers_) {
    layer->Register(registry, end);
    end = layer->end();
  }
  if (head_) head_->Register(registry, end);
  tail_.SetIncoming(end);
}

void Stage::Bind(const params::ParamStore& store) {
  if (embedding_ || head_) words_.Bind(store);
  if (embedding_) embedding_->Bind(store);
  for (const auto& layer : layers_) layer->Bind(store);
  if (head_) head_->Bind(store);
  tail_.Bind(store);
}

void Stage::TakeKept(memory::StackArena* arena) {
  inputs_.resize(args_.slots);
  input_grads_.resize(args_.slots);
  output_grads_.resize(args_.slots);
  const kernels::Shape shape = {config_.tokens(), config_.hidden};
  for (size_t slot = 0; slot < args_.slots; ++slot) {
    if (starts_inside()) {
      inputs_[slot] = arena->Take(config_.dtype, shape);
      input_grads_[slot] = arena->Take(config_.dtype, shape);
    }
    for (const auto& layer : layers_) layer->TakeKept(slot, arena);
    if (head_) head_->TakeKept(slot, arena);
    if (ends_inside()) {
      tail_.TakeKept(slot, arena);
      output_grads_[slot] = arena->Take(config_.dtype, shape);
    }
  }
}

void Stage::TakeScratch(ScratchPlan* plan) {
  memory::StackArena* arena = plan->arena;
  const kernels::Shape shape = {config_.tokens(), config_.hidden};
  grad_.residual = arena->Take(config_.dtype, shape);
  const bool dropout = kernels::MakeDropoutRate(config_.hidden_dropout).active();
  grad_.branch = dropout ? arena->Take(config_.dtype, shape) : grad_.residual;
  // An open branch is read by its border before anything writes the gradient of a norm's output.
  buffers_.partial = buffers_.dnorm = arena->Take(config_.dtype, shape);
  for (const auto& layer : layers_) layer->TakeScratch(plan);
  if (head_) head_->TakeScratch(plan);
  tail_.PlanWorkspace(plan);
}

void Stage::Forward(const Pass& pass, size_t slot, const LossArgs& loss) {
  Pending open;
  if (embedding_) {
    embedding_->Forward(pass, buffers_.partial);
    open.partials = kernels::Partials(buffers_.partial);
  } else {
    open.residual = inputs_[slot];
  }
  for (const auto& layer : layers_) open = layer->Forward(pass, slot, open, buffers_);
  if (!head_) {
    tail_.Forward(pass, slot, open);
    return;
  }
  head_->Forward(pass, slot, open, loss, buffers_.dnorm);
  if (pass.training && !embedding_) pass.Done(words_.id());
}

void Stage::Backward(const Pass& pass, size_t slot) {
  CHECK(pass.training);
  tail_.BackwardBranch(pass, head_ ? head_->dresidual(slot) : output_grads_[slot], &grad_);
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    (*layer)->Backward(pass, slot, buffers_, &grad_);
  }
  if (embedding_) {
    embedding_->Backward(pass, grad_.branch);
    return;
  }
  const Tensor& out = input_grads_[slot];
  pass.backend->device().Copy(*pass.stream, out.data, grad_.residual.data, out.Bytes());
}

}  // namespace mt::model
