// Completes a job: preset, defaults, derived values, and every check that needs no cluster. mtctl
// does it before it submits, the coordinator with what it receives, and a rank with what it is
// given: completing is idempotent. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "common/spec/fault.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

// Features that are built. A field that needs another one is refused ("not supported yet") unless
// its value means the same as without that feature.
struct ValidateContext {
  bool service = true;  // FEATURE_SERVICE: priorities, node labels, pause, deadlines
  // FEATURE_PARALLELISM: tensor, pipeline, ZeRO, 16 bit, other model families
  bool parallelism = true;
  bool cuda = true;  // FEATURE_CUDA
  // The job was accepted before, perhaps by an earlier version: what is asked of new jobs alone
  // (checkpoint.keep_every) is not asked of it.
  bool stored = false;
  // The job is a service's, where a name is unique within its namespace: checkpoint.directory is
  // NAMESPACE/NAME where it is unset. Else it is NAME, as for mt-rank --standalone.
  bool of_service = false;
};

// Applies preset and defaults, derives what can be derived, checks everything. With faults, *job is
// unspecified. After success every field with a concrete default is set, and so are model, batch,
// parallel.data and placement.{device, slots}, with exceptions: placement.threads_per_rank stays
// unset until ResolveForSlots; so does the device where it is auto (unless only CPU slots can run
// the job: fp64), and with it precision and zero_stage where they are auto.
[[nodiscard]] Faults CompleteJob(const ValidateContext& context, megatrain::v1::JobSpec* job);

// Facts about the chosen nodes; numbers are the minimum over the nodes.
struct SlotFacts {
  bool gpu = false;            // the slots are GPUs
  int64_t cores_per_node = 1;  // cores that the worker may use
  int64_t slots_per_node = 1;  // CPU slots that the worker offers
};

// Sets what the first placement decides: device, precision, zero_stage, and on CPU slots
// threads_per_rank (cores / slots, at least 1). Values that are set stay, so a job keeps them for
// life. Faults where the slots cannot run the job. Requires a completed job.
[[nodiscard]] Faults ResolveForSlots(const SlotFacts& facts, megatrain::v1::JobSpec* job,
                                     const ValidateContext& context = {});

}  // namespace mt::spec
