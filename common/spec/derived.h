// What follows from a completed job (CompleteJob returned no fault): sizes of the model, batch
// arithmetic, the learning-rate schedule's lengths, floating-point operations. Functions, not
// fields, so that nothing can disagree. Pure.
//   V vocabulary  h hidden size  S sequence length  G global batch size  L layers
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/layer_split.h"
#include "common/layout/mesh.h"
#include "common/spec/batch_ramp.h"

namespace megatrain::v1 {
class JobSpec;
class Model;
}  // namespace megatrain::v1

namespace mt::spec {

using megatrain::v1::JobSpec;
using megatrain::v1::Model;

// --- Model. What unset kv_heads, head_dim, ffn_size and max_positions become:
// docs/design/megatron-compat.md#derived-sizes.
int64_t HeadDim(const Model& model);
// Channels that a head takes in memory on slots of the job's kind (resolved): HeadDim, and on GPUs
// the next multiple of 16, as cuDNN has no plans or slower ones for sizes between.
int64_t StoredHeadDim(const JobSpec& job);
int64_t KvHeads(const Model& model);
int64_t FfnSize(const Model& model);
int64_t MaxPositions(const Model& model);
bool IsGated(const Model& model);
// Unpadded, trainable; the tied embedding counts once.
int64_t ParameterCount(const Model& model);
// V rounded up to vocab_divisible_by * tensor (Megatron's --make-vocab-size-divisible-by).
int64_t PaddedVocab(const Model& model, int64_t tensor);
int64_t PaddedVocab(const JobSpec& job);

// Floating-point operations of forward and backward over one sample of S tokens, causal attention
// counted by half, nothing counted for recomputation: 6 S h L (m ffn + q + 2k) + 6 S L q h + 6 S h
// V + 6 L q S^2, with `vocab` as V.
double FlopsPerSample(const Model& model, int64_t vocab);
// With the unpadded vocabulary, and only the pairs that a window leaves (2 w S - w^2 in place of
// S^2, w < S): one figure for a model in every layout.
double ModelFlopsPerToken(const JobSpec& job);
double ModelFlopsPerStep(const JobSpec& job);
// As ModelFlopsPerStep, but attention counted as if it were not causal: twice.
double FullFlopsPerStep(const JobSpec& job);
// With the padded vocabulary, as Megatron counts.
double MegatronFlopsPerToken(const JobSpec& job);
double MegatronFlopsPerStep(const JobSpec& job);

// --- Layout.
// tensor * pipeline * context * data.
int64_t WorldSize(const JobSpec& job);
// Its axes, for layout::Mesh.
layout::MeshSizes MeshSizesOf(const JobSpec& job);
// "tp 1, pp 0": the rank's place on the axes that the job splits. "" where there is none to tell.
std::string RankPlaceText(const JobSpec& job, int rank);
// Which layers each stage and chunk holds.
layout::LayerSplit LayerSplitOf(const JobSpec& job);
// "tp 2 x pp 2 x dp 1, sequence parallel, 1f1b, zero 1": for people. "" of a job that is not
// complete.
std::string LayoutText(const JobSpec& job);
// Its axes alone; "" for one rank.
std::string MeshText(const JobSpec& job);

// --- Batch. Its size by consumed samples; constant where there is no training.batch_ramp. Steps of
// a run, samples after a step: RampOf(job).StepsFor, SamplesAfter.
BatchRamp RampOf(const JobSpec& job);
// Microbatches of one replica in a step of `batch` samples: batch / (micro_batch_size * data).
int64_t Microbatches(const JobSpec& job, int64_t batch);
// The same and the tokens of a step of G samples, the last size of a ramp.
int64_t MicrobatchesPerStep(const JobSpec& job);
int64_t TokensPerStep(const JobSpec& job);

// --- Length. Whole steps only: train_samples and train_tokens / S are rounded down to whole
// batches, so a run never takes more than was asked for. At least 1 for a completed job.
int64_t TotalIterations(const JobSpec& job);
// Of all iterations: what a run consumes.
int64_t TotalSamples(const JobSpec& job);

// --- Learning rate, counted in samples as the schedule's counter is. A count is in the unit of the
// run's length (of iterations: the samples of so many steps, first ones for warmup and decay_over,
// last ones for wsd; samples; tokens / S); a percentage is of TotalSamples; both rounded down.
int64_t WarmupSamples(const JobSpec& job);
int64_t DecaySamples(const JobSpec& job);
// Length of the last part of decay wsd; 0 where none is given.
int64_t WsdSamples(const JobSpec& job);

// --- Data.
struct DataSource {
  double weight;       // 1 where none was given
  std::string prefix;  // below data_root
};
enum class Split { kTrain = 0, kValid = 1, kTest = 2 };
// The three shares of data.split, padded with 0; their sum is above 0.
std::vector<double> SplitShares(const JobSpec& job);
// Members of data.path where it is given, else of data.train, valid or test. Empty: no such data.
std::vector<DataSource> DataSources(const JobSpec& job, Split split);
uint64_t DataSeed(const JobSpec& job);

// --- Checkpoints. The directory below checkpoint_root; "" when the job saves none.
std::string CheckpointDirectory(const JobSpec& job);

// --- Placement. First and last port of placement.ports; none: ephemeral.
struct PortRange {
  uint16_t first;
  uint16_t last;
};
std::optional<PortRange> Ports(const JobSpec& job);

}  // namespace mt::spec
