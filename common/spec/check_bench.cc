// Kind bench: derives the length of the run, and refuses settings that a benchmark does not use.
#include "common/spec/complete.h"
#include "common/spec/job_kind.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

// A bench determines its own length. A completed job may pass here again, with train_iters set.
void CompleteLength(const CheckArgs& args) {
  v1::Training& training = *args.job->mutable_training();
  FaultList& faults = *args.faults;
  const int64_t steps = args.job->bench().warmup() + args.job->bench().steps();
  const auto refuse = [&](const char* path) {
    faults.Add(path, fmt::format("a bench runs bench.warmup + bench.steps = {} steps; leave it out",
                                 steps));
  };
  if (!faults.Clean({"bench.warmup", "bench.steps"})) {
    training.set_train_iters(1);  // placeholder; the fault is already reported
    return;
  }
  if (training.has_train_samples()) refuse("training.train_samples");
  if (training.has_train_tokens()) refuse("training.train_tokens");
  if (training.has_train_iters() && training.train_iters() != steps) refuse("training.train_iters");
  if (!training.has_train_samples() && !training.has_train_tokens())
    training.set_train_iters(steps);
}

void RefuseCheckpoints(const CheckArgs& args) {
  v1::Checkpoint& checkpoint = *args.job->mutable_checkpoint();
  FaultList& faults = *args.faults;
  const char* const why = "a bench neither saves nor loads; leave it out";
  if (checkpoint.has_directory() && checkpoint.directory() != "none") {
    faults.Add("checkpoint.directory", why);
  } else {
    checkpoint.set_directory("none");
  }
  if (checkpoint.every_iters() > 0) faults.Add("checkpoint.every_iters", why);
  if (checkpoint.has_every()) faults.Add("checkpoint.every", why);
  if (checkpoint.has_load()) faults.Add("checkpoint.load", why);
}

}  // namespace

void CompleteBench(const CheckArgs& args) {
  const v1::JobSpec& job = *args.job;
  FaultList& faults = *args.faults;
  if (!faults.Clean({"kind"})) return;
  if (!KindOf(job).is_timed) {
    RefuseOtherThanDefault(job.bench(), "bench", {"warmup", "steps", "kernels"},
                           "is for kind bench", args.faults);
    return;
  }
  CompleteLength(args);
  RefuseCheckpoints(args);
  const v1::Training& training = job.training();
  if (training.eval().every_iters() > 0)
    faults.Add("training.eval.every_iters", "a bench does not evaluate; leave it out");
  if (training.eval().prompts_size() > 0)
    faults.Add("training.eval.prompts", "a bench does not evaluate; leave it out");
  if (training.eval().decode_tokens() > 0)
    faults.Add("training.eval.decode_tokens", "nobody asks a bench for texts; leave it out");
  const char* const runs_to_its_end = "a bench runs to its end; leave it out";
  if (training.has_exit_after()) faults.Add("training.exit_after", runs_to_its_end);
  if (training.has_exit_at_iter()) faults.Add("training.exit_at_iter", runs_to_its_end);
  if (training.has_exit_interval()) faults.Add("training.exit_interval", runs_to_its_end);
}

}  // namespace mt::spec
