// Creates a rank's compute backend. The job decides its kind (placement.device); only a standalone
// run whose job leaves it open takes a GPU if one is usable.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/ops/backend.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::rank {

// Which GPU a rank takes.
struct GpuChoice {
  std::string uuid;  // "GPU-5ca8..."; empty: the ordinal counts
  int ordinal = 0;   // among those that the process sees
};

// Makes the backend of a job that is resolved for its slots. kNotFound: the CUDA module is not
// installed; kFailedPrecondition: the job uses fp64 on a GPU. Errors of the host (no
// driver or GPU, unknown UUID, unsuitable compute capability, outdated libraries) carry the cause
// kHardware, a GPU whose memory is taken kOutOfMemory (worker/failure/failure.h).
StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const megatrain::v1::JobSpec& job,
                                                        const GpuChoice& gpu);

// For a completed job without placement.device. If a GPU backend can be made, sets the device to
// gpu and returns the backend; otherwise sets it to cpu, logs why, and returns nullptr.
std::unique_ptr<kernels::Backend> TakeGpuIfAny(const GpuChoice& gpu, megatrain::v1::JobSpec* job);

}  // namespace mt::rank
