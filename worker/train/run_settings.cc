// The fields of the job that the settings stand for, in both directions.
#include "worker/train/run_settings.h"

#include <algorithm>

#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::train {

RunSettings SettingsOf(const megatrain::v1::JobSpec& job) {
  return {.log_every = std::max<int64_t>(1, job.training().log_every()),
          .checkpoint_every_iters = job.checkpoint().every_iters(),
          .checkpoint_every_ms = job.checkpoint().every(),
          .keep_last = job.checkpoint().keep_last(),
          .keep_every = job.checkpoint().keep_every(),
          .keep_best = job.checkpoint().keep_best(),
          .eval_every_iters = job.training().eval().every_iters(),
          .eval_iters = job.training().eval().iters(),
          .eval_fixed = spec::HasFixedWindows(job) ? 1 : 0};
}

void ApplySettings(const RunSettings& settings, megatrain::v1::JobSpec* job) {
  job->mutable_training()->set_log_every(settings.log_every);
  auto* checkpoint = job->mutable_checkpoint();
  checkpoint->set_every_iters(settings.checkpoint_every_iters);
  checkpoint->clear_every();
  if (settings.checkpoint_every_ms > 0) checkpoint->set_every(settings.checkpoint_every_ms);
  checkpoint->set_keep_last(settings.keep_last);
  checkpoint->set_keep_every(settings.keep_every);
  checkpoint->set_keep_best(settings.keep_best);
  auto* eval = job->mutable_training()->mutable_eval();
  eval->set_every_iters(settings.eval_every_iters);
  eval->set_iters(settings.eval_iters);
  eval->set_windows(settings.eval_fixed != 0 ? megatrain::v1::Training::Eval::WINDOWS_FIXED
                                             : megatrain::v1::Training::Eval::WINDOWS_ROLLING);
}

PackedSettings Pack(const RunSettings& s) {
  return {s.log_every, s.checkpoint_every_iters, s.checkpoint_every_ms, s.keep_last, s.keep_every,
          s.keep_best, s.eval_every_iters,       s.eval_iters,          s.eval_fixed};
}

RunSettings Unpack(const PackedSettings& packed) {
  return {.log_every = packed[0],
          .checkpoint_every_iters = packed[1],
          .checkpoint_every_ms = packed[2],
          .keep_last = packed[3],
          .keep_every = packed[4],
          .keep_best = packed[5],
          .eval_every_iters = packed[6],
          .eval_iters = packed[7],
          .eval_fixed = packed[8]};
}

}  // namespace mt::train
