// One save: the state as slices, the manifest of this step, the collective write, the report. Saves
// of both kinds differ in who writes and in what training waits for.
#include "worker/train/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/writer.h"
#include "worker/data/split.h"
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

std::string_view NameOf(kernels::DType dtype) {
  return dtype == kernels::DType::kF64 ? "F64" : "F32";
}

checkpoint::RetentionRules RulesOf(const megatrain::v1::Checkpoint& wanted) {
  return {.keep_last = wanted.keep_last(),
          .keep_every = wanted.keep_every(),
          .keep_best = wanted.keep_best()};
}

// This checkpoint, or what was written beside it later, goes to the second directory, if there is
// one.
void AddTo(checkpoint::SecondCopy* second, const std::string& path,
           const megatrain::v1::Checkpoint& wanted) {
  if (second == nullptr) return;
  const auto id = checkpoint::ParseFolderName(std::filesystem::path(path).filename().string());
  if (id) second->Add(*id, RulesOf(wanted));
}

// A checkpoint too many harms nothing: a failure is only logged.
void ReportPruned(const std::string& directory, const StatusOr<std::vector<std::string>>& removed,
                  TrainObserver* observer) {
  if (!removed.ok()) {
    log::Warn("old checkpoints were not removed", {{"why", base::Message(removed.status())}});
    return;
  }
  std::vector<std::string> paths;
  for (const std::string& name : *removed) {
    if (checkpoint::ParseFolderName(name)) paths.push_back(base::JoinPath(directory, name));
  }
  if (!paths.empty()) observer->OnCheckpointsDeleted(paths);
}

// After so many failures before.
std::chrono::seconds RetryDelay(int failures) {
  constexpr int kMostDoublings = 10;
  return std::min(control::kSaveRetryFirst * (1 << std::min(failures, kMostDoublings)),
                  control::kSaveRetryCap);
}

}  // namespace

Checkpointer::Checkpointer(const Args& args) : args_(args), last_try_(args.clock->Now()) {
  // A run that goes on from its own directory has that step on disk already.
  if (args_.start.load && args_.start.load_directory == args_.start.directory) {
    last_saved_step_ = args_.start.load->step;
    last_saved_ = args_.loaded;
  }
  since_save_.Start(args_.start.load ? args_.start.load->step : 0, args_.engine->ReadScalars());
  if (is_reporter() && enabled() && !args_.start.second.empty()) {
    second_ = std::make_unique<checkpoint::SecondCopy>(checkpoint::SecondCopy::Args{
        .from = args_.start.directory,
        .to = args_.start.second,
        .epoch = args_.start.epoch,
        .run = args_.manifest.run,
        .clock = args_.clock,
        .report =
            [observer = args_.observer](const checkpoint::SecondCopyResult& result) {
              observer->OnSecondCopy({.step = result.id.step,
                                      .epoch = result.id.epoch,
                                      .time_us = result.time_us,
                                      .bytes = result.bytes,
                                      .seconds = result.seconds,
                                      .status = result.status});
            },
        .retry_first = control::kSaveRetryFirst,
        .retry_cap = control::kSaveRetryCap});
  }
  if (args_.engine->snapshot() != nullptr) {
    background_ = std::make_unique<BackgroundSave>(&args_.engine->device(), args_.background_group);
    if (args_.background_group != nullptr) {  // which nobody else uses
      args_.background_group->SetOpTimeout(spec::SaveTimeout(*args_.job));
    }
  }
}

Status Checkpointer::EndedBy(const Status& saved) const {
  if (absl::IsFailedPrecondition(saved))
    return failure::WithCause(saved, failure::Cause::kUserError);
  const bool data_failed = args_.data_check->failed();
  if (saved.ok() || (!args_.job->checkpoint().strict() && !data_failed)) return OkStatus();
  Status ended = failure::WithCause(saved, failure::Cause::kStorage);
  const bool is_storage = failure::CauseOf(ended) == failure::Cause::kStorage;
  if (data_failed || !is_storage || !rpc::ReasonOf(ended).empty()) return ended;
  return rpc::WithReason(ended, rpc::reason::kSaveFailed);
}

bool Checkpointer::DueAfter(int64_t step) const {
  const int64_t every = args_.job->checkpoint().every_iters();
  return enabled() && every > 0 && step % every == 0;
}

bool Checkpointer::DueByTime() const {
  const auto& options = args_.job->checkpoint();
  if (!enabled() || under_way_) return false;
  const base::MonotonicTime now = args_.clock->Now();
  const bool periodic = options.has_every() || options.every_iters() > 0;
  if (failures_ > 0 && periodic && now >= retry_at_) return true;
  return options.has_every() && now - last_try_ >= std::chrono::milliseconds(options.every());
}

Status Checkpointer::Save(int64_t step) {
  Status before = Settle();
  if (!EndedBy(before).ok()) return before;
  requested_ = false;  // this one is what was asked for
  Status saved = SaveState(step);
  tried_step_ = step;
  tried_status_ = saved;
  return saved;
}

Status Checkpointer::Begin(int64_t step, bool requested) {
  if (background_ == nullptr) return Save(step);
  if (!enabled() || step == last_saved_step_) return OkStatus();
  if (!under_way_) return BeginState(step);
  if (under_way_->step < step && requested) {
    requested_ = true;
  } else if (under_way_->step < step) {
    ++skipped_;
    last_try_ = args_.clock->Now();
    log::Warn("a save was left out: the one before is not over",
              {{"step", step}, {"under_way", under_way_->step}});
  }
  return OkStatus();
}

Status Checkpointer::End(int64_t step) {
  Status ended = Settle();
  if (std::exchange(requested_, false) && EndedBy(ended).ok()) RETURN_IF_ERROR(Begin(step, true));
  return ended;
}

Status Checkpointer::Settle() {
  if (!under_way_) return OkStatus();
  const SaveOutcome outcome = background_->Finish();
  const Begun begun = *under_way_;
  under_way_.reset();
  const double stall = args_.stalled ? args_.stalled() - begun.stalled : 0;
  Status ended = Ended(begun, outcome.saved, stall);
  if (ended.ok() && is_reporter())
    ReportPruned(args_.start.directory, outcome.pruned, args_.observer);
  return ended;
}

std::optional<StatusOr<CheckpointRecord>> Checkpointer::SavedSince(int64_t step) const {
  using Found = std::optional<StatusOr<CheckpointRecord>>;
  if (!enabled()) {
    return Found(
        base::FailedPrecondition("the job saves no checkpoints: checkpoint.directory is \"none\""));
  }
  if (last_saved_step_ >= step) {
    CHECK(last_saved_.has_value()) << "asked on another rank than 0";
    return Found(*last_saved_);
  }
  if (tried_step_ >= step) return Found(tried_status_);
  if (requested_ || (under_way_ && under_way_->step >= step)) return std::nullopt;
  return Found(base::FailedPrecondition("the run ended after step {}, before the save", step));
}

Checkpointer::Begun Checkpointer::Note(int64_t step) {
  last_try_ = args_.clock->Now();
  Begun begun{.step = step,
              .scalars = args_.engine->ReadScalars(),
              .at = last_try_,
              .stalled = args_.stalled ? args_.stalled() : 0,
              .progress = std::make_shared<SaveProgress>()};
  if (last_eval_ && last_eval_->step == step) begun.evaluation = last_eval_;
  begun.progress->step = step;
  begun.counts = since_save_.Begin(step, begun.scalars);
  watched_bytes_ = -1;
  return begun;
}

checkpoint::SaveArgs Checkpointer::ArgsOf(const Begun& begun) {
  checkpoint::SaveArgs save{.directory = args_.start.directory,
                            .manifest = args_.manifest,
                            .slices = SlicesToSave(args_.engine->store(), args_.engine->routes()),
                            .fence = fence(),
                            .restore_fence = nullptr,
                            .failpoint = args_.failpoint};
  if (fence() != nullptr) {
    save.restore_fence = [this](const Status& gone) -> Status {
      RETURN_IF_ERROR(args_.fence_repair.Restore(args_.start.directory, *fence(), gone));
      // The folder may be an empty one, which an operator has made.
      return checkpoint::KeepRun(args_.start.directory, args_.run);
    };
  }
  for (const checkpoint::SliceToSave& slice : save.slices)
    begun.progress->total += checkpoint::TensorBytes(NameOf(slice.dtype), slice.shape);
  save.progress = [progress = begun.progress, observer = args_.observer](int64_t bytes) {
    const int64_t done = progress->done += bytes;
    observer->OnActivity({.kind = ActivityKind::kSaving,
                          .step = progress->step,
                          .done = done,
                          .total = progress->total});
  };
  save.progress(0);
  save.manifest.step = begun.step;
  save.manifest.epoch = args_.start.epoch;
  save.manifest.skipped_since_save = begun.counts.skipped;
  save.manifest.spoiled = begun.counts.spoiled;
  PutScalars(begun.scalars, &save.manifest);
  if (args_.consumed_by_member) {
    PutConsumed(Name(data::SplitName::kTrain),
                args_.consumed_by_member(begun.scalars.consumed_samples), &save.manifest);
  }
  return save;
}

Status Checkpointer::BeginState(int64_t step) {
  if (Status checked = args_.data_check->Run(step); !checked.ok()) {
    tried_step_ = step;
    tried_status_ = checked;
    return checked;
  }
  under_way_ = Note(step);
  BackgroundSave::Order order{.save = ArgsOf(*under_way_),
                              .snapshot = args_.engine->snapshot(),
                              .computes = &args_.engine->stream(),
                              .rests = args_.saves_rest,
                              .prune = nullptr};
  if (is_reporter()) {
    order.prune = [request = PruneAfterSave()] { return checkpoint::PruneCheckpoints(request); };
  }
  background_->Begin(std::move(order));
  return OkStatus();
}

Status Checkpointer::SaveState(int64_t step) {
  if (!enabled() || step == last_saved_step_) {
    last_try_ = args_.clock->Now();
    return OkStatus();
  }
  RETURN_IF_ERROR(args_.engine->Synchronize());
  RETURN_IF_ERROR(args_.data_check->Run(step));
  const Begun begun = Note(step);
  std::unique_ptr<DevicePieces> reader;
  if (args_.engine->device().kind() != kernels::DeviceKind::kCpu) {
    reader = std::make_unique<DevicePieces>(args_.engine->staging());
  }
  checkpoint::SaveArgs save = ArgsOf(begun);
  save.reader = reader.get();
  save.group = args_.group;
  save.stream = &args_.engine->stream();
  save.progress = [this, step, count = save.progress](int64_t bytes) {
    count(bytes);
    args_.observer->OnProgress(step);
  };
  const comm::OpTimeoutScope patience(args_.group, spec::SaveTimeout(*args_.job));
  const StatusOr<checkpoint::SaveResult> saved = checkpoint::SaveCheckpoint(save);
  const std::chrono::duration<double> stall = args_.clock->Now() - begun.at;
  RETURN_IF_ERROR(Ended(begun, saved, stall.count()));
  if (is_reporter()) {
    ReportPruned(args_.start.directory, checkpoint::PruneCheckpoints(PruneAfterSave()),
                 args_.observer);
  }
  return OkStatus();
}

Status Checkpointer::Ended(const Begun& begun, const StatusOr<checkpoint::SaveResult>& saved,
                           double stall_seconds) {
  args_.observer->OnActivityEnd(ActivityKind::kSaving);
  tried_step_ = begun.step;
  tried_status_ = saved.status();
  if (!saved.ok()) {
    log::Error("checkpoint failed", {{"step", begun.step}, {"why", base::Message(saved.status())}});
    retry_at_ = args_.clock->Now() + RetryDelay(failures_++);
    if (is_reporter()) args_.observer->OnCheckpointFailed(begun.step, saved.status());
    return saved.status();
  }
  failures_ = 0;
  last_saved_step_ = begun.step;
  since_save_.Saved(begun.step, begun.scalars);
  if (!is_reporter()) return OkStatus();
  last_saved_ = {.step = last_saved_step_,
                 .epoch = args_.start.epoch,
                 .consumed_samples = begun.scalars.consumed_samples,
                 .path = saved->path,
                 .bytes = saved->bytes,
                 .seconds = saved->seconds,
                 .time_us = base::ToUnixMicros(args_.clock->WallNow()),
                 .stall_seconds = stall_seconds,
                 .tokens = begun.scalars.consumed_samples * args_.job->model().seq_length(),
                 .digest = saved->digest,
                 .root_id = args_.start.root_id,
                 .run = args_.manifest.run,
                 .skipped = std::exchange(skipped_, 0)};
  num_saved_ += begun.counts.spoiled ? 0 : 1;
  args_.observer->OnCheckpointSaved(*last_saved_);
  if (begun.counts.spoiled) {
    log::Warn("the checkpoint is spoiled: it makes none before it give way",
              {{"at_step", begun.step},
               {"skipped", begun.counts.skipped},
               {"of_steps", begun.counts.steps}});
  }
  if (begun.evaluation) WriteEvaluation(*begun.evaluation);
  AddTo(second_.get(), saved->path, args_.job->checkpoint());
  return OkStatus();
}

Status Checkpointer::Label(const CheckpointRecord& saved, const checkpoint::Label& label) {
  if (fence() != nullptr) RETURN_IF_ERROR(CheckFence(args_.start.directory, *fence()));
  RETURN_IF_ERROR(checkpoint::WriteLabel(args_.start.directory, {saved.step, saved.epoch}, label));
  if (last_saved_ && last_saved_->step == saved.step) last_saved_->label = label;
  AddTo(second_.get(), saved.path, args_.job->checkpoint());
  return OkStatus();
}

void Checkpointer::TakeEvaluation(const EvalRecord& record) {
  if (last_eval_ && last_eval_->step == record.step) return;
  last_eval_ = record;
  if (under_way_ && under_way_->step == record.step) under_way_->evaluation = record;
  if (last_saved_ && last_saved_->step == record.step) WriteEvaluation(record);
}

// A checkpoint without its loss is only never one of the best.
void Checkpointer::WriteEvaluation(const EvalRecord& record) {
  if (!enabled() || !last_saved_) return;
  if (last_saved_->epoch != args_.start.epoch) {
    // The one that was loaded. An attempt of this run that ended before it had evaluated its save
    // leaves that to the next one.
    const bool ours = !last_saved_->run.empty() && last_saved_->run == args_.manifest.run;
    if (!ours || base::Exists(base::JoinPath(last_saved_->path, checkpoint::kEvaluationName)))
      return;
  }
  Status written = fence() == nullptr ? OkStatus() : CheckFence(args_.start.directory, *fence());
  if (written.ok()) {
    written =
        checkpoint::WriteEvaluation(last_saved_->path, {.split = record.split,
                                                        .step = record.step,
                                                        .loss = record.loss,
                                                        .tokens = record.tokens,
                                                        .measure = record.measure,
                                                        .bits_per_byte = record.bits_per_byte});
  }
  if (written.ok()) return AddTo(second_.get(), last_saved_->path, args_.job->checkpoint());
  log::Warn("the loss of a checkpoint was not written", {{"why", base::Message(written)}});
}

void Checkpointer::Watch() {
  if (!under_way_ || !is_reporter() || under_way_->hangs) return;
  const base::MonotonicTime now = args_.clock->Now();
  const int64_t done = under_way_->progress->done;
  if (done != watched_bytes_) {
    watched_bytes_ = done;
    moved_at_ = now;
  }
  if (IsOver() || now - moved_at_ < control::kSaveLimit) return;
  under_way_->hangs = true;
  tried_step_ = under_way_->step;
  tried_status_ = base::Error(
      absl::StatusCode::kDeadlineExceeded,
      "the save of step {} has written nothing for {} s ({} of {} bytes of rank 0 are written, or "
      "another rank waits for its storage): training goes on, and no other save begins before this "
      "one ends",
      under_way_->step, std::chrono::seconds(control::kSaveLimit).count(), done,
      under_way_->progress->total);
  log::Error("a save hangs", {{"step", under_way_->step}, {"why", base::Message(tried_status_)}});
  args_.observer->OnCheckpointFailed(under_way_->step, tried_status_);
}

checkpoint::PruneArgs Checkpointer::PruneAfterSave() {
  const auto& wanted = args_.job->checkpoint();
  checkpoint::PruneArgs request{.directory = args_.start.directory,
                                .rules = RulesOf(wanted),
                                .epoch = args_.start.epoch,
                                .fence = fence(),
                                .run = args_.manifest.run,
                                .known = &known_runs_,
                                .kept_steps = args_.kept_steps};
  // Until this run has two of its own, what it went on from is what a next start falls back to.
  const int64_t saved = num_saved_ + (under_way_ && !under_way_->counts.spoiled ? 1 : 0);
  if (saved < 2 && args_.start.load_directory == args_.start.directory)
    request.rules.base = args_.start.load;
  return request;
}

}  // namespace mt::train
