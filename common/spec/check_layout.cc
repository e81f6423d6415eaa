// Mesh, slots, device, precision and batch: what is left to auto is derived, then the products and
// divisions are checked.
#include "common/base/math.h"
#include "common/spec/complete.h"
#include "common/spec/number.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

constexpr int64_t kMaxSlots = int64_t{1} << 20;

int64_t ModelRanks(const v1::Parallel& parallel) {
  return SaturatingProduct(SaturatingProduct(parallel.tensor(), parallel.pipeline()),
                           parallel.context());
}

bool MeshIsClean(const FaultList& faults) {
  return faults.Clean({"parallel.tensor", "parallel.pipeline", "parallel.context",
                       "parallel.expert", "parallel.data", "placement.slots"});
}

void CompleteMesh(const CheckArgs& args) {
  v1::Parallel& parallel = *args.job->mutable_parallel();
  v1::Placement& placement = *args.job->mutable_placement();
  FaultList& faults = *args.faults;
  if (!MeshIsClean(faults)) return;
  const int64_t model_ranks = ModelRanks(parallel);
  if (!parallel.has_data() && placement.has_slots() && placement.slots() % model_ranks != 0) {
    faults.Add("placement.slots",
               fmt::format(
                   "{} is not a multiple of tensor {} x pipeline {} x context {} = {}; nearest: {}",
                   placement.slots(), parallel.tensor(), parallel.pipeline(), parallel.context(),
                   model_ranks, NearestMultiples(placement.slots(), model_ranks)));
    return;
  }
  if (!parallel.has_data())
    parallel.set_data(placement.has_slots() ? placement.slots() / model_ranks : 1);
  const int64_t world = SaturatingProduct(model_ranks, parallel.data());
  if (world > kMaxSlots) {
    faults.Add("parallel",
               fmt::format("the product of its sizes is more than {} slots", kMaxSlots));
  } else if (placement.has_slots() && placement.slots() != world) {
    faults.Add("placement.slots",
               fmt::format("is {}, but tensor {} x pipeline {} x context {} x data {} = {}; leave "
                           "slots or data to auto",
                           placement.slots(), parallel.tensor(), parallel.pipeline(),
                           parallel.context(), parallel.data(), world));
  } else {
    placement.set_slots(world);
  }
}

void CheckDivides(const CheckArgs& args, std::string_view path, int64_t value, int64_t unit,
                  std::string_view unit_text) {
  if (value == 0 || value % unit == 0 || !args.faults->Clean({path})) return;
  args.faults->Add(std::string(path), fmt::format("{} is not a multiple of {}; nearest: {}", value,
                                                  unit_text, NearestMultiples(value, unit)));
}

// What each axis cuts. Sizes that are missing are 0 and were reported before.
void CheckCuts(const CheckArgs& args) {
  const v1::Model& model = args.job->model();
  v1::Parallel& parallel = *args.job->mutable_parallel();
  if (!MeshIsClean(*args.faults)) return;
  if (!parallel.has_sequence_parallel()) parallel.set_sequence_parallel(parallel.tensor() > 1);
  if (!parallel.has_zero_stage()) parallel.set_zero_stage(0);
  const std::string tensor = fmt::format("parallel.tensor {}", parallel.tensor());
  CheckDivides(args, "model.heads", model.heads(), parallel.tensor(), tensor);
  CheckDivides(args, "model.kv_heads", model.kv_heads(), parallel.tensor(), tensor);
  CheckDivides(args, "model.ffn_size", model.ffn_size(), parallel.tensor(), tensor);
  if (parallel.sequence_parallel()) {
    CheckDivides(args, "model.seq_length", model.seq_length(), parallel.tensor(), tensor);
  }
  if (parallel.context() > 1) {
    CheckDivides(args, "model.seq_length", model.seq_length(), 2 * parallel.context(),
                 fmt::format("2 x parallel.context {}", parallel.context()));
  }
  const int64_t chunks = SaturatingProduct(parallel.pipeline(), parallel.virtual_stages());
  if (!parallel.has_layout() && args.faults->Clean({"parallel.virtual_stages"})) {
    CheckDivides(args, "model.layers", model.layers(), chunks,
                 fmt::format("parallel.pipeline {} x virtual_stages {} (or give parallel.layout)",
                             parallel.pipeline(), parallel.virtual_stages()));
  }
}

void CompleteDevice(const CheckArgs& args) {
  v1::Placement& placement = *args.job->mutable_placement();
  v1::Training& training = *args.job->mutable_training();
  if (!args.faults->Clean({"placement.device", "training.precision"})) return;
  if (!placement.has_device() && !args.context.cuda)
    placement.set_device(v1::Placement::DEVICE_CPU);
  if (placement.has_device() && !training.has_precision()) {
    const bool gpu = placement.device() == v1::Placement::DEVICE_GPU;
    training.set_precision(gpu ? v1::Training::PRECISION_BF16 : v1::Training::PRECISION_FP32);
  }
  if (training.precision() == v1::Training::PRECISION_FP64 &&
      placement.device() == v1::Placement::DEVICE_GPU) {
    args.faults->Add("training.precision", "fp64 runs on CPU slots only; use fp32 or bf16");
  }
}

void CompleteBatch(const CheckArgs& args) {
  v1::Training& training = *args.job->mutable_training();
  const v1::Parallel& parallel = args.job->parallel();
  FaultList& faults = *args.faults;
  if (!MeshIsClean(faults) || !training.has_micro_batch_size()) return;
  if (!faults.Clean({"training.micro_batch_size", "training.global_batch_size"})) return;
  const int64_t unit = training.micro_batch_size() * parallel.data();
  if (!training.has_global_batch_size()) training.set_global_batch_size(unit);
  const int64_t batch = training.global_batch_size();
  if (batch % unit != 0) {
    faults.Add(
        "training.global_batch_size",
        fmt::format("{} is not micro_batch_size {} x parallel.data {} = {} times a whole number of "
                    "microbatches; nearest: {}",
                    batch, training.micro_batch_size(), parallel.data(), unit,
                    NearestMultiples(batch, unit)));
    return;
  }
  const int64_t group =
      parallel.has_microbatch_group() ? parallel.microbatch_group() : parallel.pipeline();
  const bool interleaved = parallel.schedule() == v1::Parallel::SCHEDULE_INTERLEAVED ||
                           (!parallel.has_schedule() && parallel.virtual_stages() > 1);
  if (interleaved && faults.Clean({"parallel.microbatch_group", "parallel.virtual_stages"}) &&
      (batch / unit) % group != 0) {
    faults.Add(
        "training.global_batch_size",
        fmt::format(
            "{} makes {} microbatches, not a multiple of the interleaved group {}; nearest: {}",
            batch, batch / unit, group, NearestMultiples(batch, SaturatingProduct(unit, group))));
  }
}

}  // namespace

void CompleteLayout(const CheckArgs& args) {
  CompleteMesh(args);
  CheckCuts(args);
  CompleteDevice(args);
  CompleteBatch(args);
}

}  // namespace mt::spec
