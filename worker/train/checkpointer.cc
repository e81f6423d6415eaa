// One save: the state as slices, the manifest of this step, the collective write, the report.
#include "worker/train/checkpointer.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/writer.h"
#include "worker/train/run_state.h"

namespace mt::train {
namespace {

// Device memory through pinned pieces: the next one is copied while one goes to disk.
class DevicePieces final : public checkpoint::PieceReader {
 public:
  // A save that failed may have left a piece under way.
  explicit DevicePieces(memory::Staging* staging) : staging_(staging) { staging_->Drain(); }
  void Start(const void* data, int64_t bytes) override { staging_->Prefetch(data, bytes); }
  const void* Read() override { return staging_->Take(); }

 private:
  memory::Staging* const staging_;
};
static_assert(checkpoint::kLargestPieceBytes <= memory::Staging::kPieceBytes);

}  // namespace

failure::Cause CauseOfFailedSave(const Status& saved) {
  return absl::IsFailedPrecondition(saved) ? failure::Cause::kUserError : failure::Cause::kStorage;
}

Checkpointer::Checkpointer(const Args& args) : args_(args), last_try_(args.clock->Now()) {
  // A run that goes on from its own directory has that step on disk already.
  if (args_.start.load && args_.start.load_directory == args_.start.directory) {
    last_saved_step_ = args_.start.load->step;
    last_saved_ = args_.loaded;
  }
}

bool Checkpointer::EndsRun(const Status& saved) const {
  return !saved.ok() && (args_.job->checkpoint().strict() || absl::IsFailedPrecondition(saved));
}

bool Checkpointer::DueAfter(int64_t step) const {
  const int64_t every = args_.job->checkpoint().every_iters();
  return enabled() && every > 0 && step % every == 0;
}

bool Checkpointer::DueByTime() const {
  const auto& options = args_.job->checkpoint();
  return enabled() && options.has_every() &&
         args_.clock->Now() - last_try_ >= std::chrono::milliseconds(options.every());
}

Status Checkpointer::Save(int64_t step) {
  tried_status_ = SaveState(step);
  tried_step_ = step;
  return tried_status_;
}

StatusOr<CheckpointRecord> Checkpointer::CheckpointOf(int64_t step) const {
  if (!enabled()) {
    return base::FailedPrecondition(
        "the job saves no checkpoints: checkpoint.directory is \"none\"");
  }
  if (last_saved_step_ == step) {
    CHECK(last_saved_.has_value()) << "asked on another rank than 0";
    return *last_saved_;
  }
  if (tried_step_ == step) return tried_status_;
  return base::FailedPrecondition("the run ended after step {}, before the save", step);
}

Status Checkpointer::SaveState(int64_t step) {
  last_try_ = args_.clock->Now();
  if (!enabled() || step == last_saved_step_) return OkStatus();
  const base::MonotonicTime begin = args_.clock->Now();
  RETURN_IF_ERROR(args_.engine->Synchronize());
  const kernels::StepScalars scalars = args_.engine->ReadScalars();
  std::unique_ptr<DevicePieces> reader;
  if (args_.engine->device().kind() != kernels::DeviceKind::kCpu) {
    reader = std::make_unique<DevicePieces>(args_.engine->staging());
  }
  checkpoint::SaveArgs save{.directory = args_.start.directory,
                            .manifest = args_.manifest,
                            .slices = SlicesToSave(args_.engine->store(), args_.engine->tp_rank()),
                            .reader = reader.get(),
                            .group = args_.group,
                            .stream = &args_.engine->stream(),
                            .progress = [this, step](int64_t) { args_.observer->OnProgress(step); },
                            .fence = fence(),
                            .restore_fence = nullptr,
                            .failpoint = args_.failpoint};
  if (fence() != nullptr) {
    save.restore_fence = [this](const Status& gone) {
      return args_.fence_repair.Restore(args_.start.directory, *fence(), gone);
    };
  }
  save.manifest.step = step;
  save.manifest.epoch = args_.start.epoch;
  PutScalars(scalars, &save.manifest);

  const StatusOr<checkpoint::SaveResult> saved = checkpoint::SaveCheckpoint(save);
  const bool reporter = args_.group == nullptr || args_.group->rank() == 0;
  if (!saved.ok()) {
    log::Error("checkpoint failed", {{"step", step}, {"why", base::Message(saved.status())}});
    if (reporter) args_.observer->OnCheckpointFailed(step, saved.status());
    return saved.status();
  }
  last_saved_step_ = step;
  if (reporter) Report(*saved, scalars, begin);
  return OkStatus();
}

void Checkpointer::Report(const checkpoint::SaveResult& saved, const kernels::StepScalars& scalars,
                          base::MonotonicTime begin) {
  // Saves are synchronous: training stands still from end to end.
  const std::chrono::duration<double> stall = args_.clock->Now() - begin;
  last_saved_ = {.step = last_saved_step_,
                 .epoch = args_.start.epoch,
                 .consumed_samples = scalars.consumed_samples,
                 .path = saved.path,
                 .bytes = saved.bytes,
                 .seconds = saved.seconds,
                 .time_us = base::ToUnixMicros(args_.clock->WallNow()),
                 .stall_seconds = stall.count(),
                 .tokens = scalars.consumed_samples * args_.job->model().seq_length(),
                 .digest = saved.digest,
                 .root_id = args_.start.root_id};
  ++num_saved_;
  args_.observer->OnCheckpointSaved(*last_saved_);
  WriteEvaluation();
  Prune();
}

void Checkpointer::TakeEvaluation(const EvalRecord& record) {
  last_eval_ = record;
  WriteEvaluation();
}

// A checkpoint without its loss is only never one of the best.
void Checkpointer::WriteEvaluation() const {
  if (!enabled() || !last_eval_ || !last_saved_ || last_eval_->step != last_saved_->step) return;
  if (last_saved_->epoch != args_.start.epoch) return;  // another run's, or the one loaded
  Status written = fence() == nullptr ? OkStatus() : CheckFence(args_.start.directory, *fence());
  if (written.ok()) {
    written = checkpoint::WriteEvaluation(last_saved_->path, {.split = last_eval_->split,
                                                              .step = last_eval_->step,
                                                              .loss = last_eval_->loss,
                                                              .tokens = last_eval_->tokens});
  }
  if (!written.ok())
    log::Warn("the loss of a checkpoint was not written", {{"why", base::Message(written)}});
}

// A checkpoint too many harms nothing: a failure is only logged.
void Checkpointer::Prune() const {
  const auto& wanted = args_.job->checkpoint();
  checkpoint::RetentionRules rules{.keep_last = wanted.keep_last(),
                                   .keep_every = wanted.keep_every(),
                                   .keep_best = wanted.keep_best()};
  // Until this run has two of its own, what it went on from is what a next start falls back to.
  if (num_saved_ < 2 && args_.start.load_directory == args_.start.directory)
    rules.base = args_.start.load;
  const auto removed = checkpoint::PruneCheckpoints({.directory = args_.start.directory,
                                                     .rules = rules,
                                                     .epoch = args_.start.epoch,
                                                     .fence = fence()});
  if (!removed.ok()) {
    log::Warn("old checkpoints were not removed", {{"why", base::Message(removed.status())}});
    return;
  }
  std::vector<std::string> paths;
  for (const std::string& name : *removed) {
    if (checkpoint::ParseFolderName(name)) {
      paths.push_back(base::JoinPath(args_.start.directory, name));
    }
  }
  if (!paths.empty()) args_.observer->OnCheckpointsDeleted(paths);
}

}  // namespace mt::train
