// Reads the job's protobuf, so that no other file of the engine needs its generated header.
#include "worker/engine/engine_config.h"

#include <algorithm>

#include "common/base/math.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/parallel/schedule/job_request.h"
#include "worker/params/flat_layout.h"

namespace mt::engine {
namespace {

using megatrain::v1::JobSpec;

int64_t LargestBatch(const spec::BatchRamp& ramp) {
  int64_t largest = 0;
  for (const spec::BatchPhase& phase : ramp.phases()) largest = std::max(largest, phase.batch);
  return largest;
}

// Of the positions between the ends of the model.
std::vector<int> PositionsWithoutLayers(const JobSpec& job) {
  const std::vector<layout::ModelChunk> chunks = spec::LayerSplitOf(job).chunks();
  std::vector<int> positions;
  for (size_t position = 1; position + 1 < chunks.size(); ++position) {
    if (chunks[position].num_layers == 0) positions.push_back(static_cast<int>(position));
  }
  return positions;
}

bool HasEmbedding(const std::vector<layout::ModelChunk>& chunks) {
  return std::any_of(chunks.begin(), chunks.end(),
                     [](const layout::ModelChunk& chunk) { return chunk.has_embedding; });
}

}  // namespace

EngineConfig EngineConfigFromJob(const JobSpec& job, const layout::GroupAxes& axes) {
  const auto& parallel = job.parallel();
  EngineConfig config;
  config.model = model::ConfigFromJob(job);
  config.model.shard = {.rank = axes.IndexIn(layout::kTensorAxes),
                        .size = axes.SizeOf(layout::kTensorAxes),
                        .sequence_parallel = parallel.sequence_parallel()};
  config.stage = axes.IndexIn(layout::kStageAxes);
  config.chunks = spec::LayerSplitOf(job).OfStage(config.stage);
  if (config.model.position == model::PositionKind::kLearned && !HasEmbedding(config.chunks))
    config.model.reset_positions = false;  // their table is the first stage's
  config.ramp = spec::RampOf(job);
  config.schedule =
      parallel::ScheduleRequestOf(job, spec::Microbatches(job, LargestBatch(config.ramp)));
  config.schedule.hand_on = PositionsWithoutLayers(job);
  config.samples_per_round = job.training().micro_batch_size() * axes.SizeOf(layout::kDataAxes);
  config.constants = optim::ConstantsFromJob(job);
  config.optimizer = optim::OptimizerFromJob(job);
  config.share = {.zero_stage = base::CheckedCast<int>(parallel.zero_stage()),
                  .dp_rank = axes.IndexIn(layout::kGradientAxes),
                  .moments = config.optimizer.moments()};
  config.bucket_bytes =
      parallel.has_bucket_size() ? parallel.bucket_size() : params::kMinBucketBytes;
  config.overlap_reduce = parallel.overlap().grad_reduce();
  config.overlap_gather = parallel.overlap().param_gather();
  config.recordings = job.training().recordings();
  config.snapshot = job.checkpoint().async_save() && !spec::CheckpointDirectory(job).empty();
  return config;
}

}  // namespace mt::engine
