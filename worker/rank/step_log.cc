// Every method forwards, and most log. Steps are also logged when they are the last one or, in
// lines of our own, were skipped: Megatron-LM's count those.
#include "worker/rank/step_log.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "common/base/log.h"
#include "common/control/epoch.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::rank {

using megatrain::v1::JobSpec;
using megatrain::v1::Telemetry;

namespace {

double FlopsPerSampleAndSlot(const JobSpec& job) {
  return spec::MegatronFlopsPerToken(job) * static_cast<double>(job.model().seq_length()) /
         static_cast<double>(spec::WorldSize(job));
}

}  // namespace

StepLog::StepLog(const JobSpec& job, train::TrainObserver* next)
    : log_every_(std::max<int64_t>(1, job.training().log_every())), next_(next) {
  if (job.telemetry().log_format() != Telemetry::LOG_FORMAT_MEGATRON) return;
  megatron_.emplace(Megatron{.lines = report::MegatronLines(FlopsPerSampleAndSlot(job)),
                             .ramp = spec::RampOf(job)});
}

void StepLog::OnState(train::TrainState state, int64_t step) {
  if (next_ != nullptr) next_->OnState(state, step);
}
void StepLog::OnProgress(int64_t step) {
  if (next_ != nullptr) next_->OnProgress(step);
}
void StepLog::OnActivity(const train::Activity& activity) {
  if (next_ != nullptr) next_->OnActivity(activity);
}
void StepLog::OnActivityEnd(train::ActivityKind kind) {
  if (next_ != nullptr) next_->OnActivityEnd(kind);
}
void StepLog::OnCounters(const train::RankCounters& counters) {
  if (next_ != nullptr) next_->OnCounters(counters);
}

void StepLog::OnCommandDone(const train::CommandResult& result) {
  log::Info("command done", {{"id", result.id},
                             {"word_step", result.carrier_step},
                             {"after_step", result.step},
                             {"error", base::Message(result.error)}});
  if (next_ != nullptr) next_->OnCommandDone(result);
}

void StepLog::OnSettings(const train::RunSettings& settings) {
  log_every_ = settings.log_every;
  log::Info("settings updated", {{"log_every", settings.log_every},
                                 {"checkpoint_every_iters", settings.checkpoint_every_iters},
                                 {"checkpoint_every_ms", settings.checkpoint_every_ms},
                                 {"keep_last", settings.keep_last},
                                 {"keep_every", settings.keep_every},
                                 {"keep_best", settings.keep_best},
                                 {"eval_every_iters", settings.eval_every_iters},
                                 {"eval_iters", settings.eval_iters}});
  if (next_ != nullptr) next_->OnSettings(settings);
}

void StepLog::OnFailed(const Status& why, bool alone) {
  if (next_ != nullptr) next_->OnFailed(why, alone);
}

void StepLog::OnCheckpointsDeleted(const std::vector<std::string>& paths) {
  log::Info("old checkpoints removed", {{"paths", fmt::format("{}", fmt::join(paths, " "))}});
  if (next_ != nullptr) next_->OnCheckpointsDeleted(paths);
}

void StepLog::OnSecondCopy(const train::SecondCopyRecord& record) {
  if (!record.status.ok()) {
    log::Error("a checkpoint was not copied to the second directory",
               {{"at_step", record.step}, {"why", base::Message(record.status)}});
  } else if (record.bytes > 0) {
    log::Info("checkpoint copied to the second directory",
              {{"at_step", record.step},
               {"bytes", record.bytes},
               {"seconds", fmt::format("{:.2f}", record.seconds)}});
  }
  if (next_ != nullptr) next_->OnSecondCopy(record);
}

void StepLog::OnRunInfo(const train::RunInfo& info) {
  total_steps_ = info.total_steps;
  log::Info("training", {{"parameters", info.parameters},
                         {"steps", info.total_steps},
                         {"resumed_from", info.resumed_from_step},
                         {"epoch", control::EpochText(info.epoch)},
                         {"checkpoints", info.checkpoint_path}});
  log::Info("how much the run reads",
            {{"tokens", info.outlook.tokens},
             {"tokens_ahead", info.outlook.tokens_ahead},
             {"passes_over_train", fmt::format("{:.2f}", info.outlook.train_passes)},
             {"passes_over_valid", fmt::format("{:.2f}", info.outlook.valid_passes)}});
  if (!info.changed.empty()) {
    log::Info("the job differs from that of the checkpoint that it goes on from",
              {{"at_step", info.resumed_from_step},
               {"fields", fmt::format("{}", fmt::join(info.changed, "; "))}});
  }
  if (next_ != nullptr) next_->OnRunInfo(info);
}

void StepLog::OnStep(const megatrain::v1::StepRecord& record) {
  log::SetStep(record.step());
  const bool due = record.step() % log_every_ == 0 || record.step() == total_steps_;
  if (megatron_) {
    megatron_->lines.Add(record);
    const int64_t batch = megatron_->ramp.BatchBefore(record.consumed_samples());
    if (due)
      log::Line(megatron_->lines.Take(record, {.total_steps = total_steps_, .batch = batch}));
  } else if (due || record.skipped()) {
    log::Info("step done",
              {{"loss", fmt::format("{:.6f}", record.loss())},
               {"grad_norm", fmt::format("{:.6f}", record.grad_norm())},
               {"lr", fmt::format("{:.4e}", record.learning_rate())},
               {"tokens_per_second", fmt::format("{:.0f}", record.tokens_per_second())},
               {"step_seconds", fmt::format("{:.4f}", record.step_seconds())},
               {"samples", record.consumed_samples()},
               {"skipped", record.skipped()}});
  }
  if (next_ != nullptr) next_->OnStep(record);
}

void StepLog::OnEval(const train::EvalRecord& record) {
  if (megatron_) {
    for (const std::string& line : report::MegatronEvalLines(
             {.step = record.step, .loss = record.loss, .final = record.final}))
      log::Line(line);
  } else {
    log::Info("evaluated", {{"split", record.split},
                            {"at_step", record.step},
                            {"loss", fmt::format("{:.6f}", record.loss)},
                            {"tokens", record.tokens},
                            {"seconds", fmt::format("{:.2f}", record.seconds)}});
  }
  if (record.bits_per_byte) {
    log::Info("evaluated, in bits per byte",
              {{"split", record.split},
               {"at_step", record.step},
               {"bits_per_byte", fmt::format("{:.6f}", *record.bits_per_byte)}});
  }
  for (const train::EvalSample& sample : record.samples) {
    log::Info("sample", {{"at_step", record.step},
                         {"prompt", sample.prompt},
                         {"text", sample.text},
                         {"finish", sample.finish}});
  }
  if (next_ != nullptr) next_->OnEval(record);
}

void StepLog::OnBench(const megatrain::v1::BenchReport& report) {
  log::Info("benchmark done",
            {{"steps", report.steps()},
             {"median_step_seconds", fmt::format("{:.6f}", report.median_step_seconds())},
             {"p95_step_seconds", fmt::format("{:.6f}", report.p95_step_seconds())},
             {"tokens_per_second", fmt::format("{:.0f}", report.tokens_per_second())},
             {"tflops_per_slot", fmt::format("{:.4g}", report.tflops_per_slot())}});
  if (next_ != nullptr) next_->OnBench(report);
}

void StepLog::OnCheckpointSaved(const train::CheckpointRecord& record) {
  log::Info("checkpoint saved", {{"at_step", record.step},
                                 {"path", record.path},
                                 {"bytes", record.bytes},
                                 {"seconds", fmt::format("{:.2f}", record.seconds)}});
  if (next_ != nullptr) next_->OnCheckpointSaved(record);
}

void StepLog::OnCheckpointFailed(int64_t step, const Status& why) {
  log::Error("checkpoint failed", {{"at_step", step}, {"why", base::Message(why)}});
  if (next_ != nullptr) next_->OnCheckpointFailed(step, why);
}

}  // namespace mt::rank
