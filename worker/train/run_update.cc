// One broadcast of a struct of fixed size; data sets are opened anew only where the cadence of
// evaluation changes, which all ranks must be able to follow.
#include "worker/train/run_update.h"

#include <utility>

#include "common/spec/print.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/exchange.h"

namespace mt::train {
namespace {

// Another number of evaluations may need more samples of the validation split.
Status ReopenEvaluation(const UpdateArgs& args, const RunSettings& next, RunData* data) {
  megatrain::v1::JobSpec job = *args.job;
  ApplySettings(next, &job);
  ASSIGN_OR_RETURN(RunData opened, OpenRunData({.job = &job,
                                                .course = args.course,
                                                .data_root = args.data_root,
                                                .cache_root = args.cache_root}));
  TakeValidation(std::move(opened), data);
  return OkStatus();
}

}  // namespace

Status UpdateRun(const UpdateArgs& args, const std::optional<RunSettings>& asked, Status* refused) {
  PackedSettings packed{};
  if (asked) packed = Pack(*asked);
  if (args.world != nullptr) {
    RETURN_IF_ERROR(args.world->Broadcast(args.engine->stream(), packed.data(), kNumRunSettings,
                                          kernels::DType::kI64, /*root=*/0));
    RETURN_IF_ERROR(args.engine->Synchronize());
  }
  const RunSettings next = Unpack(packed);
  const RunSettings now = SettingsOf(*args.job);
  *refused = OkStatus();
  if (next.eval_every_iters != now.eval_every_iters || next.eval_iters != now.eval_iters ||
      next.eval_fixed != now.eval_fixed) {
    checkpoint::Exchange exchange(args.world, &args.engine->stream());
    RunData data = *args.data;
    *refused = exchange.Agree(ReopenEvaluation(args, next, &data));
    // A broken group ends the run with the next step.
    if (!refused->ok()) return OkStatus();
    *args.data = std::move(data);
    args.evaluator->SetCadence(next.eval_every_iters,
                               next.eval_iters * args.job->training().global_batch_size(),
                               next.eval_fixed != 0);
  }
  ApplySettings(next, args.job);
  args.checkpointer->SetSpec(spec::ToJson(*args.job));
  args.observer->OnSettings(next);
  return OkStatus();
}

}  // namespace mt::train
