// The schedule that a job asks for: what the engine runs and `mtctl explain schedule` draws. The
// only part of this folder that knows the job's protobuf.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "worker/parallel/schedule/generate.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::schedule {

// Of a completed job (spec::CompleteJob), for steps of so many microbatches per replica. One stage
// runs 1F1B, which is then one forward and one backward in turns, whatever its schedule is called.
Request RequestOf(const megatrain::v1::JobSpec& job, int64_t microbatches);

}  // namespace mt::schedule
