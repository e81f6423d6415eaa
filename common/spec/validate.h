// A job made complete: preset, defaults, derived values and every check that needs no cluster. Done
// by mtctl before it submits, by the coordinator on what it receives and by the rank on what it is
// given: it is idempotent. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "common/spec/fault.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

// What the system has built; a field that needs more is refused ("not supported yet") unless its
// value means what is built.
struct ValidateContext {
  bool service = true;  // FEATURE_SERVICE: priorities, node labels, pause, deadlines
  // FEATURE_PARALLELISM: tensor, pipeline, ZeRO, 16 bit, other model families
  bool parallelism = true;
  bool cuda = true;  // FEATURE_CUDA
  // Ranks on several GPUs; until communication between GPUs is built a job runs on one.
  bool multi_gpu = false;
};

// Applies the preset and the defaults, derives what can be derived, checks everything. With faults,
// *job is unspecified. After success every field with a concrete default is set; model, batch,
// parallel.data, placement.{device, slots} too. placement.threads_per_rank stays unset until
// ResolveForSlots; so do device where it is auto (but for what only CPU slots can do: fp64), and
// then precision and zero_stage where they are.
[[nodiscard]] Faults CompleteJob(const ValidateContext& context, megatrain::v1::JobSpec* job);

// What the placement knows of the nodes it chose (the smallest of each over the nodes).
struct SlotFacts {
  bool gpu = false;            // kind of the slots
  int64_t cores_per_node = 1;  // cores that the worker may use
  int64_t slots_per_node = 1;  // CPU slots that the worker offers
};

// Fills what was left to the first placement: device, precision, zero_stage, and on CPU slots
// threads_per_rank (cores / slots, at least 1). Values that are set stay (a job keeps them for
// life). Faults where the slots cannot run the job. Call on a completed job.
[[nodiscard]] Faults ResolveForSlots(const SlotFacts& facts, megatrain::v1::JobSpec* job,
                                     const ValidateContext& context = {});

}  // namespace mt::spec
