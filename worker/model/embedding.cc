// The backward sums the rows of each distinct token, and of each position where they restart, in
// the order sorted by the loader, so it needs no atomics and is deterministic.
#include "worker/model/embedding.h"

namespace mt::model {

using kernels::Tensor;

Embedding::Embedding(const GptConfig& config, const VocabMatrix* word_embedding, bool zero_gradient)
    : config_(config),
      word_embedding_(word_embedding),
      zero_gradient_(zero_gradient),
      dropout_(MakeDropoutSite(config.hidden_dropout, 0, Site::kEmbedding, config.seed)) {}

void Embedding::Register(params::Registry* registry) {
  if (config_.position != PositionKind::kLearned) return;
  const kernels::Shape shape = {config_.max_positions, config_.hidden};
  position_id_ = registry->Add({.name = "embedding.position.weight",
                                .shape = shape,
                                .stored = shape,
                                .region = params::Region::kPositionTable,
                                .init = params::InitKind::kNormal,
                                .std = config_.init_std,
                                .decay = true});
}

void Embedding::Bind(const params::ParamStore& store) {
  if (position_id_ != params::ParamId::kNone) dpositions_ = store.Grad(position_id_);
}

kernels::Partials Embedding::Forward(const Pass& pass, const Tensor& whole) const {
  pass.backend->embedding().Gather(*pass.stream, {.tokens = pass.batch->tokens,
                                                  .table = word_embedding_->weight(),
                                                  .first_row = word_embedding_->first_row(),
                                                  .out = whole});
  return pass.Reduce(whole);
}

void Embedding::Backward(const Pass& pass, const PendingCollective& dbranch) const {
  if (pass.mode == kernels::GradMode::kOverwrite) {
    // Only gradients that are scattered into need to be cleared.
    kernels::Device& device = pass.backend->device();
    if (dpositions_) device.Zero(*pass.stream, dpositions_.data, dpositions_.Bytes());
    if (zero_gradient_) {
      device.Zero(*pass.stream, word_embedding_->grad().data, word_embedding_->grad().Bytes());
    }
  }
  kernels::EmbeddingScatterArgs args = {.dy = pass.Finish(dbranch),
                                        .order = pass.batch->order,
                                        .segment_token = pass.batch->segment_token,
                                        .segment_start = pass.batch->segment_start,
                                        .num_segments = pass.batch->segment_token.NumElements(),
                                        .count = pass.batch->segment_count,
                                        .first_row = word_embedding_->first_row(),
                                        .dtable = word_embedding_->grad()};
  if (dpositions_ && !config_.reset_positions) {
    args.positions = pass.batch->positions;
    args.batch = pass.batch->b;
    args.dposition = dpositions_;
  }
  pass.backend->embedding().ScatterGrad(*pass.stream, args);
  if (dpositions_ && config_.reset_positions) {
    pass.backend->embedding().ScatterGrad(*pass.stream,
                                          {.dy = args.dy,
                                           .order = pass.batch->position_order,
                                           .segment_token = pass.batch->position_value,
                                           .segment_start = pass.batch->position_start,
                                           .num_segments = pass.batch->position_value.NumElements(),
                                           .count = pass.batch->position_count,
                                           .dtable = dpositions_});
  }
  pass.Done(word_embedding_->id());
  pass.Done(position_id_);
}

BranchEnd Embedding::end() const { return {.positions = position_id_, .dropout = dropout_}; }

}  // namespace mt::model
