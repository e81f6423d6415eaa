// Translates a job into the request for its schedule, which the engine runs and `mtctl explain
// schedule` draws. The only file of this folder that knows the job's protobuf.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "worker/parallel/schedule/generate.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::parallel {

// The request of a completed job (spec::CompleteJob) for steps of this many microbatches per
// replica. A single stage always runs 1F1B, which is then one forward and one backward alternately.
// CHECKs that the schedule is resolved.
ScheduleRequest ScheduleRequestOf(const megatrain::v1::JobSpec& job, int64_t microbatches);

}  // namespace mt::parallel
