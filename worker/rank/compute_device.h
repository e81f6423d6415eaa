// The compute backend of a rank. Which kind it is, the job says (placement.device), never a guess;
// a standalone run whose job leaves it open takes a GPU where one can be used.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/ops/backend.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::rank {

// Of a job that is resolved for its slots. `gpu`: UUID of the GPU that the rank was given; empty:
// the first one that this process sees. kNotFound: no CUDA module is installed; cause HARDWARE: no
// driver or GPU, an unknown UUID, an unfit compute capability, libraries that are too old.
StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const megatrain::v1::JobSpec& job,
                                                        const std::string& gpu);

// For a completed job without placement.device: sets it to gpu if a backend of a GPU can be made,
// which is returned, else to cpu, with a line in the log that says why, and returns nullptr.
std::unique_ptr<kernels::Backend> TakeGpuIfAny(const std::string& gpu, megatrain::v1::JobSpec* job);

}  // namespace mt::rank
