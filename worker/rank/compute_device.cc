// Loads the CUDA module or makes the CPU backend, and attributes failures to the job, the host or
// neither.
#include "worker/rank/compute_device.h"

#include <utility>

#include "common/base/log.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/module.h"
#include "megatrain/v1/job.pb.h"
#include "worker/failure/failure.h"

namespace mt::rank {

using megatrain::v1::JobSpec;
using megatrain::v1::Placement;

namespace {

void Announce(kernels::Backend& backend) {
  kernels::Device& device = backend.device();
  if (const auto memory = device.Memory()) {
    log::Info("compute device", {{"device", device.Describe()},
                                 {"free_bytes", memory->free_bytes},
                                 {"total_bytes", memory->total_bytes}});
  } else {
    log::Info("compute device", {{"device", device.Describe()}});
  }
}

StatusOr<std::unique_ptr<kernels::Backend>> MakeGpuBackend(const JobSpec& job,
                                                           const GpuChoice& gpu) {
  if (job.training().precision() == megatrain::v1::Training::PRECISION_FP64) {
    return base::FailedPrecondition("training.precision: fp64 runs on CPU slots only");
  }
  auto backend = kernels::cuda::LoadCudaBackend({.device = gpu.ordinal, .uuid = gpu.uuid});
  // What the host lacks is the slot's fault. A module that is not installed is the job's, which
  // asks for a GPU; memory held by another process is neither's.
  if (backend.ok() || absl::IsNotFound(backend.status())) return backend;
  return failure::WithCause(backend.status(), absl::IsResourceExhausted(backend.status())
                                                  ? failure::Cause::kOutOfMemory
                                                  : failure::Cause::kHardware);
}

}  // namespace

StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const JobSpec& job, const GpuChoice& gpu) {
  std::unique_ptr<kernels::Backend> backend;
  if (job.placement().device() == Placement::DEVICE_GPU) {
    ASSIGN_OR_RETURN(backend, MakeGpuBackend(job, gpu));
  } else {
    const int threads = static_cast<int>(job.placement().threads_per_rank());
    ASSIGN_OR_RETURN(backend, kernels::cpu::MakeCpuBackend({.num_threads = threads}));
  }
  Announce(*backend);
  return backend;
}

std::unique_ptr<kernels::Backend> TakeGpuIfAny(const GpuChoice& gpu, JobSpec* job) {
  auto backend = MakeGpuBackend(*job, gpu);
  if (!backend.ok()) {
    // A GPU that exists but cannot be used deserves a warning, a missing one does not.
    if (absl::IsResourceExhausted(backend.status())) {
      log::Warn("training on the CPU", {{"why", base::Message(backend.status())}});
    } else {
      log::Info("training on the CPU", {{"why", base::Message(backend.status())}});
    }
    job->mutable_placement()->set_device(Placement::DEVICE_CPU);
    return nullptr;
  }
  Announce(**backend);
  job->mutable_placement()->set_device(Placement::DEVICE_GPU);
  return std::move(backend).value();
}

}  // namespace mt::rank
