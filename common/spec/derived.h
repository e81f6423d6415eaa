// What follows from a completed job (CompleteJob returned no fault): sizes of the model, batch
// arithmetic, lengths of the learning-rate schedule, floating-point operations. They are functions
// instead of fields, so that nothing can disagree. A job that is not completed may fail a CHECK.
// Pure; thread-safe. Symbols below:
//   V vocabulary  h hidden size  S sequence length  G global batch size  L layers
#pragma once

#include <chrono>
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
// Elements that a head occupies in memory on slots of the job's kind (the device is resolved):
// HeadDim on CPU slots, and on GPUs the next multiple of 16, as cuDNN's attention has no plans or
// slower ones for other sizes.
int64_t StoredHeadDim(const JobSpec& job);
int64_t KvHeads(const Model& model);
int64_t FfnSize(const Model& model);
int64_t MaxPositions(const Model& model);
// True for the activations with two input matrices: SwiGLU and GeGLU.
bool IsGated(const Model& model);
// The vocabulary; where the job leaves it to its data, that of the preset, or 0: an estimate until
// a rank has read the data's tokenizer.
int64_t KnownVocab(const Model& model);
// Trainable parameters, without padding; a tied embedding counts once.
int64_t ParameterCount(const Model& model);
// V rounded up to vocab_divisible_by * tensor (Megatron's --make-vocab-size-divisible-by).
int64_t PaddedVocab(const Model& model, int64_t tensor);
int64_t PaddedVocab(const JobSpec& job);

// Floating-point operations of forward and backward over one sample of S tokens, with causal
// attention counted by half and nothing added for recomputation:
//   6 S h L (m ffn + q + 2k) + 6 S L q h + 6 S h V + 6 L q S^2
// where V = `vocab`, q and k are the total widths of queries and of keys, ffn the width of the
// feed-forward layer and m its matrices (2, gated 3). Megatron-LM's num_floating_point_operations.
double FlopsPerSample(const Model& model, int64_t vocab);
// The same with the unpadded vocabulary and only the query-key pairs that a sliding window of w < S
// leaves (2 w S - w^2 in place of S^2): one figure per model, whatever the layout.
double ModelFlopsPerToken(const JobSpec& job);
double ModelFlopsPerStep(const JobSpec& job);
// As ModelFlopsPerStep, but attention counts all S^2 pairs, as if it were not causal.
double FullFlopsPerStep(const JobSpec& job);
// With the padded vocabulary and without the window, as Megatron-LM counts.
double MegatronFlopsPerToken(const JobSpec& job);
double MegatronFlopsPerStep(const JobSpec& job);

// True if each evaluation during training reads the same samples (training.eval.windows). A job
// from before there was the field has what auto means.
bool HasFixedWindows(const JobSpec& job);

// True if ranks write texts while they train: behind evaluations (training.eval.prompts), or when
// somebody asks for them (training.eval.decode_tokens).
bool WritesTexts(const JobSpec& job);

// --- Layout.
// Number of ranks: tensor * pipeline * context * data; 1 of a reader (job_kind.h), which has no
// layout.
int64_t WorldSize(const JobSpec& job);
// Sizes of the mesh's axes, for layout::Mesh; of a reader 1 each.
layout::MeshSizes MeshSizesOf(const JobSpec& job);
// The rank's coordinates on the axes whose size is above 1: "tp 1, pp 0". "" for one rank, an
// invalid rank, or a job without a layout.
std::string RankPlaceText(const JobSpec& job, int rank);
// The distribution of layers over stages and model chunks.
layout::LayerSplit LayerSplitOf(const JobSpec& job);
// The layout for people: "tp 2 x pp 2 x dp 1, sequence parallel, 1f1b, zero 1"; "" for a job that
// is not completed.
std::string LayoutText(const JobSpec& job);
// The mesh's sizes alone: "tp 2 x pp 2 x dp 1"; "" for one rank.
std::string MeshText(const JobSpec& job);

// --- Batch. Batch size as a function of consumed samples, constant without training.batch_ramp.
// Its StepsFor and SamplesAfter give the steps of a run and the samples after a step.
BatchRamp RampOf(const JobSpec& job);
// Microbatches per data parallel replica in a step of `batch` samples: batch / (micro_batch_size *
// data).
int64_t Microbatches(const JobSpec& job, int64_t batch);
// Microbatches per replica, and tokens, in a step of G samples (the last size of a ramp).
int64_t MicrobatchesPerStep(const JobSpec& job);
int64_t TokensPerStep(const JobSpec& job);

// --- Length. Only whole steps count: train_samples and train_tokens / S are rounded down to whole
// batches, so a run never takes more than was asked for. At least 1.
int64_t TotalIterations(const JobSpec& job);
// Samples that the whole run consumes.
int64_t TotalSamples(const JobSpec& job);

// --- Learning rate, of a run that begins with this job (course.h has those of one that goes on
// with other batch sizes). Lengths are in samples, as is the schedule's counter. A count is in the
// unit of the run's length: iterations (converted to the samples of the first steps for warmup and
// decay_over, of the last steps for wsd), samples, or tokens / S. A percentage refers to
// TotalSamples. Both are rounded down.
int64_t WarmupSamples(const JobSpec& job);
int64_t DecaySamples(const JobSpec& job);
// Length of the final decay of a WSD (warmup-stable-decay) schedule; 0 where none is given.
int64_t WsdSamples(const JobSpec& job);

// --- Data.
struct DataSource {
  std::optional<double> weight;
  std::string prefix;  // relative to data_root
  std::string file;    // likewise: a list of weights and prefixes instead; the only member then
};
enum class Split { kTrain = 0, kValid = 1, kTest = 2 };
// The three shares of data.split, missing ones 0; their sum is above 0.
std::vector<double> SplitShares(const JobSpec& job);
// The members of data.path where it is given, else those of data.train, data.valid or data.test.
// Empty: the job has no data for the split.
std::vector<DataSource> DataSources(const JobSpec& job, Split split);
// data.seed, or training.seed where it is unset.
uint64_t DataSeed(const JobSpec& job);

// --- Checkpoints. The directory relative to checkpoint_root; "" when the job saves none.
std::string CheckpointDirectory(const JobSpec& job);
// That of a service's job which names none: NAMESPACE/NAME. Its coordinator may know another one,
// from an earlier version (daemon/api/job_directory.h), and stores which it is.
std::string ServiceDirectory(const JobSpec& job);

// --- Placement. First and last port of placement.ports; nullopt: ephemeral ports.
struct PortRange {
  uint16_t first;
  uint16_t last;
};
std::optional<PortRange> Ports(const JobSpec& job);

// How long a rank waits for the others in one call, beyond which it takes them for lost
// (resilience.timeouts): while data and checkpoints are opened and loaded; while one is saved; and
// otherwise. Jobs that an earlier version has completed lack the last: then the default.
std::chrono::milliseconds LoadTimeout(const JobSpec& job);
std::chrono::milliseconds SaveTimeout(const JobSpec& job);
std::chrono::milliseconds CollectiveTimeout(const JobSpec& job);

}  // namespace mt::spec
