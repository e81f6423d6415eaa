// The configuration of one rank's engine, from its job and its place among the ranks. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/group_axes.h"
#include "common/layout/layer_split.h"
#include "common/spec/batch_ramp.h"
#include "kernels/ops/step_scalars.h"
#include "worker/engine/tensor_copies.h"
#include "worker/model/gpt_config.h"
#include "worker/optim/schedule.h"
#include "worker/parallel/schedule/generate.h"
#include "worker/params/param_store.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::engine {

struct EngineConfig {
  model::GptConfig model;                  // with this rank's shard
  std::vector<layout::ModelChunk> chunks;  // of this rank's stage
  int stage = 0;
  parallel::ScheduleRequest schedule;  // of the step with the most microbatches
  int64_t samples_per_round = 0;       // one microbatch of every replica
  kernels::StepConstants constants;    // of a step of the last batch size
  spec::BatchRamp ramp = spec::BatchRamp::Constant(1);
  optim::OptimizerConfig optimizer;
  params::StateShare share;
  int64_t bucket_bytes = 0;  // of gradients, at least
  bool overlap_reduce = true;
  bool overlap_gather = true;
  bool recordings = false;  // training.recordings; auto: off
  bool snapshot = false;    // checkpoint.async_save: memory for a StateSnapshot, if there is room
  TensorCopies tensor_copies;
};

// For a completed job (spec::CompleteJob, ResolveForSlots).
EngineConfig EngineConfigFromJob(const megatrain::v1::JobSpec& job, const layout::GroupAxes& axes);

}  // namespace mt::engine
