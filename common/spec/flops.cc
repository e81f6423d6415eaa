// Floating-point operations, as Megatron-LM's core_v0.12.0 and later count them
// (docs/design/megatron-compat.md#flops).
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {

namespace {

// `square` stands for s^2: twice the number of causal query-key pairs per sample and head.
double CountPerSample(const Model& model, int64_t vocab, double square) {
  const auto h = static_cast<double>(model.hidden_size());
  const auto layers = static_cast<double>(model.layers());
  const auto s = static_cast<double>(model.seq_length());
  const auto q = static_cast<double>(model.heads() * HeadDim(model));
  const auto k = static_cast<double>(KvHeads(model) * HeadDim(model));
  const auto ffn = static_cast<double>(FfnSize(model));
  const double matrices = IsGated(model) ? 3 : 2;
  // The factor 6: forward and the two products of backward, each with a multiplication and an
  // addition.
  const double layer = s * h * ffn * matrices + s * h * (q + 2 * k) + s * q * h + q * square;
  return 6 * (layers * layer + s * h * static_cast<double>(vocab));
}

// s^2 without the two triangles that a sliding window of width w excludes: 2 w s - w^2.
double WindowedSquare(const Model& model) {
  const auto s = static_cast<double>(model.seq_length());
  if (!model.has_window() || model.window() >= model.seq_length()) return s * s;
  const auto w = static_cast<double>(model.window());
  return 2 * w * s - w * w;
}

double ModelFlopsPerSample(const Model& model) {
  return CountPerSample(model, KnownVocab(model), WindowedSquare(model));
}

}  // namespace

double FlopsPerSample(const Model& model, int64_t vocab) {
  const auto s = static_cast<double>(model.seq_length());
  return CountPerSample(model, vocab, s * s);
}

double ModelFlopsPerToken(const JobSpec& job) {
  return ModelFlopsPerSample(job.model()) / static_cast<double>(job.model().seq_length());
}

double ModelFlopsPerStep(const JobSpec& job) {
  return ModelFlopsPerSample(job.model()) * static_cast<double>(job.training().global_batch_size());
}

double FullFlopsPerStep(const JobSpec& job) {
  const Model& model = job.model();
  const auto q = static_cast<double>(model.heads() * HeadDim(model));
  const double other_half = 6 * static_cast<double>(model.layers()) * q * WindowedSquare(model);
  return ModelFlopsPerStep(job) +
         other_half * static_cast<double>(job.training().global_batch_size());
}

double MegatronFlopsPerToken(const JobSpec& job) {
  return FlopsPerSample(job.model(), PaddedVocab(job)) /
         static_cast<double>(job.model().seq_length());
}

double MegatronFlopsPerStep(const JobSpec& job) {
  return FlopsPerSample(job.model(), PaddedVocab(job)) *
         static_cast<double>(job.training().global_batch_size());
}

}  // namespace mt::spec
