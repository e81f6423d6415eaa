// A step's batch size must give whole microbatches on every replica and, with interleaving, whole
// groups of microbatches; at every size of a ramp.
#include "common/spec/batch_ramp.h"
#include "common/spec/complete.h"
#include "common/spec/job_kind.h"
#include "common/spec/number.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

// True when a step of `batch` samples divides so; `what` names the size in the fault at `path`.
bool CheckSize(const CheckArgs& args, std::string_view path, std::string_view what, int64_t batch) {
  const v1::Parallel& parallel = args.job->parallel();
  const int64_t micro = args.job->training().micro_batch_size();
  const int64_t unit = SaturatingProduct(micro, parallel.data());
  if (batch % unit != 0) {
    args.faults->Add(
        std::string(path),
        fmt::format("{}{} is not micro_batch_size {} x parallel.data {} = {} times a whole number "
                    "of microbatches; nearest: {}",
                    what, batch, micro, parallel.data(), unit, NearestMultiples(batch, unit)));
    return false;
  }
  const bool interleaved = parallel.schedule() == v1::Parallel::SCHEDULE_INTERLEAVED;
  if (!interleaved || !args.faults->Clean({"parallel.schedule", "parallel.microbatch_group",
                                           "parallel.virtual_stages", "parallel.pipeline"})) {
    return true;
  }
  const int64_t group = parallel.microbatch_group();
  if (batch / unit % group == 0) return true;
  args.faults->Add(
      std::string(path),
      fmt::format("{}{} makes {} microbatches, not a multiple of the interleaved group {}; "
                  "nearest: {}",
                  what, batch, batch / unit, group,
                  NearestMultiples(batch, SaturatingProduct(unit, group))));
  return false;
}

// Checks the ramp and derives a global batch size that is left to it. All steps of a bench are
// alike: it takes the last size of the ramp.
void CompleteRamp(const CheckArgs& args) {
  v1::Training& training = *args.job->mutable_training();
  if (!args.job->model().has_seq_length() ||
      !args.faults->Clean({"training.batch_ramp", "model.seq_length"})) {
    return;
  }
  const StatusOr<BatchRamp> ramp = BatchRamp::Parse({.text = training.batch_ramp(),
                                                     .global_batch = training.global_batch_size(),
                                                     .seq_length = args.job->model().seq_length()});
  if (!ramp.ok()) {
    args.faults->Add("training.batch_ramp", base::Message(ramp.status()));
    return;
  }
  training.set_global_batch_size(ramp->last_batch());
  if (KindOf(*args.job).is_timed) {
    training.clear_batch_ramp();
    CheckSize(args, "training.global_batch_size", "", training.global_batch_size());
    return;
  }
  for (const BatchPhase& phase : ramp->phases()) {
    if (!CheckSize(args, "training.batch_ramp", "size ", phase.batch)) return;
  }
}

}  // namespace

void CompleteBatch(const CheckArgs& args) {
  v1::Training& training = *args.job->mutable_training();
  FaultList& faults = *args.faults;
  if (!MeshIsClean(faults) || !training.has_micro_batch_size()) return;
  if (!faults.Clean({"training.micro_batch_size", "training.global_batch_size"})) return;
  if (training.has_batch_ramp()) return CompleteRamp(args);
  if (!training.has_global_batch_size()) {
    training.set_global_batch_size(training.micro_batch_size() * args.job->parallel().data());
  }
  CheckSize(args, "training.global_batch_size", "", training.global_batch_size());
}

}  // namespace mt::spec
