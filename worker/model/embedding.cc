// Gather forward, segmented sums backward.
#include "worker/model/embedding.h"

namespace mt::model {

using kernels::Tensor;

WordTable::WordTable(const GptConfig& config) : config_(config) {}

void WordTable::Register(params::Registry* registry) {
  id_ = registry->Add({.name = "embedding.word.weight",
                       .shape = {config_.vocab, config_.hidden},
                       .stored = {config_.padded_vocab, config_.hidden},
                       .region = params::Region::kWordTable,
                       .init = params::InitKind::kNormal,
                       .std = config_.init_std,
                       .decay = true});
}

void WordTable::Bind(const params::ParamStore& store) {
  weight_ = store.Weight(id_);
  grad_ = store.Grad(id_);
}

Embedding::Embedding(const GptConfig& config, const WordTable* words, bool zero_words)
    : config_(config),
      words_(words),
      zero_words_(zero_words),
      dropout_(MakeDropoutSite(config.hidden_dropout, 0, Site::kEmbedding, config.seed)) {}

void Embedding::Register(params::Registry* registry) {
  const kernels::Shape shape = {config_.max_positions, config_.hidden};
  position_id_ = registry->Add({.name = "embedding.position.weight",
                                .shape = shape,
                                .stored = shape,
                                .region = params::Region::kPositionTable,
                                .init = params::InitKind::kNormal,
                                .std = config_.init_std,
                                .decay = true});
}

void Embedding::Bind(const params::ParamStore& store) { dpositions_ = store.Grad(position_id_); }

void Embedding::Forward(const Pass& pass, const Tensor& partial) const {
  pass.backend->embedding().Gather(
      *pass.stream,
      {.tokens = pass.batch->tokens, .table = words_->weight(), .first_row = 0, .out = partial});
}

void Embedding::Backward(const Pass& pass, const Tensor& dbranch) const {
  if (pass.mode == kernels::GradMode::kOverwrite) {
    // Scatter targets are the only gradients that need clearing.
    kernels::Device& device = pass.backend->device();
    device.Zero(*pass.stream, dpositions_.data, dpositions_.Bytes());
    if (zero_words_) device.Zero(*pass.stream, words_->grad().data, words_->grad().Bytes());
  }
  pass.backend->embedding().ScatterGrad(*pass.stream, {.dy = dbranch,
                                                       .order = pass.batch->order,
                                                       .segment_token = pass.batch->segment_token,
                                                       .segment_start = pass.batch->segment_start,
                                                       .num_segments = pass.batch->num_segments,
                                                       .first_row = 0,
                                                       .dtable = words_->grad(),
                                                       .positions = pass.batch->positions,
                                                       .batch = pass.batch->b,
                                                       .dposition = dpositions_});
  pass.Done(words_->id());
  pass.Done(position_id_);
}

BranchEnd Embedding::end() const { return {.positions = position_id_, .dropout = dropout_}; }

}  // namespace mt::model
