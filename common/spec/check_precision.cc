// What depends on the device: precision and loss scale, how much of the optimizer's state is
// sharded (zero_stage), how many ranks a group may have.
#include "common/spec/complete.h"
#include "common/spec/derived.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using LossScale = v1::Training::LossScale;

void CheckScaleFields(const LossScale& scale, FaultList* faults) {
  const bool is_static = scale.mode() == LossScale::MODE_STATIC;
  if (is_static && !scale.has_value()) {
    faults->Add("training.loss_scale.value", "required for mode static, such as 65536");
  }
  if (!is_static && scale.has_value()) {
    faults->Add("training.loss_scale.value", "is for mode static; set the mode or drop the value");
  }
  if (is_static) {
    RefuseOtherThanDefault(scale, "training.loss_scale", {"initial", "window", "hysteresis", "min"},
                           "is for mode dynamic only", faults);
  } else if (scale.initial() < scale.min()) {
    faults->Add("training.loss_scale.initial",
                fmt::format("{} is below min {}", scale.initial(), scale.min()));
  }
}

void CompleteLossScale(const CheckArgs& args) {
  v1::Training& training = *args.job->mutable_training();
  LossScale& scale = *training.mutable_loss_scale();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"training.precision", "training.loss_scale", "training.loss_scale.mode",
                     "training.loss_scale.value", "training.loss_scale.initial",
                     "training.loss_scale.min"})) {
    return;
  }
  if (training.precision() == v1::Training::PRECISION_FP16) {
    if (!scale.has_mode())
      scale.set_mode(scale.has_value() ? LossScale::MODE_STATIC : LossScale::MODE_DYNAMIC);
    return CheckScaleFields(scale, &faults);
  }
  constexpr std::string_view kWhy = "is for training.precision fp16 only";
  if (scale.has_mode()) faults.Add("training.loss_scale.mode", std::string(kWhy));
  if (scale.has_value()) faults.Add("training.loss_scale.value", std::string(kWhy));
  RefuseOtherThanDefault(scale, "training.loss_scale", {"initial", "window", "hysteresis", "min"},
                         kWhy, &faults);
}

// Groups of host memory connect each pair of their members, unless they carry words alone.
constexpr int64_t kLargestHostGroup = 64;  // ranks

void CheckGroups(const v1::JobSpec& job, FaultList* faults) {
  if (job.placement().device() == v1::Placement::DEVICE_GPU) {
    if (job.training().debug_collectives() && job.placement().slots() > kLargestHostGroup &&
        faults->Clean({"training.debug_collectives", "placement.slots"})) {
      faults->Add("training.debug_collectives",
                  fmt::format("compares the calls of at most {} ranks, and the job has {}; leave "
                              "it out, or try the layout with fewer replicas",
                              kLargestHostGroup, job.placement().slots()));
    }
    return;
  }
  if (job.placement().device() != v1::Placement::DEVICE_CPU) return;
  for (const auto& [path, size] : {std::pair("parallel.tensor", job.parallel().tensor()),
                                   std::pair("parallel.data", job.parallel().data())}) {
    if (size <= kLargestHostGroup || !faults->Clean({path})) continue;
    faults->Add(path, fmt::format("on CPU slots at most {} ranks share what one group exchanges, "
                                  "and it is {}; use fewer, or device gpu",
                                  kLargestHostGroup, size));
  }
}

}  // namespace

void CompleteZeroStage(bool gpu, v1::JobSpec* job) {
  v1::Parallel& parallel = *job->mutable_parallel();
  if (!parallel.has_zero_stage()) parallel.set_zero_stage(gpu && parallel.data() > 1 ? 1 : 0);
}

void CheckForDevice(const CheckArgs& args) {
  const v1::JobSpec& job = *args.job;
  const v1::Placement& placement = job.placement();
  FaultList& faults = *args.faults;
  CheckGroups(job, &faults);
  if (placement.device() != v1::Placement::DEVICE_GPU) return;
  if (job.training().precision() == v1::Training::PRECISION_FP64 &&
      faults.Clean({"training.precision"})) {
    faults.Add("training.precision",
               "fp64 runs on CPU slots only; use fp32 or bf16, or device cpu");
  }
  RefuseThreadsOnGpu(args);
}

void RefuseThreadsOnGpu(const CheckArgs& args) {
  if (!args.job->placement().has_threads_per_rank() ||
      !args.faults->Clean({"placement.threads_per_rank"}))
    return;
  args.faults->Add("placement.threads_per_rank",
                   "is for CPU slots, and this job runs on a GPU; leave it out, or use device cpu");
}

void CompleteDevice(const CheckArgs& args) {
  v1::Placement& placement = *args.job->mutable_placement();
  v1::Training& training = *args.job->mutable_training();
  if (!args.faults->Clean({"training.precision"})) return;
  const bool cpu_only = training.precision() == v1::Training::PRECISION_FP64;
  if (!placement.has_device() && (cpu_only || !args.context.cuda))
    placement.set_device(v1::Placement::DEVICE_CPU);
  CheckForDevice(args);
  const bool gpu = placement.device() == v1::Placement::DEVICE_GPU;
  if (!args.faults->Clean({"placement.device"})) return;
  if (placement.has_device() && !training.has_precision())
    training.set_precision(gpu ? v1::Training::PRECISION_BF16 : v1::Training::PRECISION_FP32);
  if (placement.has_device() && args.faults->Clean({"parallel.data", "parallel.zero_stage"}))
    CompleteZeroStage(gpu, args.job);
  CompleteLossScale(args);
}

}  // namespace mt::spec
