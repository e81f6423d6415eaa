// The one place where a step's record is filled: a new metric gets its value here.
#include "worker/train/step_report.h"

#include <charconv>
#include <cmath>
#include <string>
#include <unistd.h>

#include "common/base/files.h"
#include "common/report/loss_units.h"
#include "megatrain/v1/step.pb.h"
#include "worker/failure/failure.h"

namespace mt::train {

namespace v1 = megatrain::v1;

namespace {

constexpr std::string_view kDigits = "0123456789";

void AddPhases(const engine::PhaseSeconds& seconds, v1::StepRecord* record) {
  for (size_t i = 0; i < seconds.size(); ++i) {
    const std::string name(report::Name(static_cast<report::StepPhase>(i)));
    (*record->mutable_phase_seconds())[name] = seconds[i];
  }
}

void AddMemory(const memory::BytesByKind& bytes, v1::StepRecord* record) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string name(memory::Name(static_cast<memory::Kind>(i)));
    (*record->mutable_memory_bytes())[name] = bytes[i];
  }
}

// The loss in units that are not nats per token.
void SetUnits(const engine::StepVector& vector, v1::StepRecord* record) {
  if (vector.sums.tokens <= 0) return;
  if (const auto perplexity = report::Perplexity(record->loss()))
    record->set_perplexity(*perplexity);
  if (const auto bits = report::BitsPerByte(vector.sums.loss, vector.label_bytes))
    record->set_bits_per_byte(*bits);
}

}  // namespace

ResidentMemory ReadResidentMemory() {
  const auto status = base::ReadFile("/proc/self/status");  // lines "RssFile:     1234 kB"
  if (!status.ok()) return {};
  const auto bytes_of = [&](std::string_view name) {
    const size_t line = status->find(name);
    const size_t digits = line == std::string::npos ? line : status->find_first_of(kDigits, line);
    int64_t kib = 0;
    if (digits != std::string::npos)
      std::from_chars(status->data() + digits, status->data() + status->size(), kib);
    return kib * 1024;
  };
  return {.own_bytes = bytes_of("\nRssAnon:") + bytes_of("\nRssShmem:"),
          .mapped_file_bytes = bytes_of("\nRssFile:")};
}

v1::StepRecord MakeStepRecord(const StepReportConfig& config, int64_t step,
                              const engine::StepOutcome& outcome, const StepTimes& times) {
  const kernels::StepScalars& scalars = outcome.scalars;
  const double tokens = outcome.vector.sums.tokens;
  const auto batch = static_cast<double>(times.batch);
  const auto world_size = static_cast<double>(config.world_size);
  v1::StepRecord record;
  record.set_step(step);
  record.set_loss(tokens > 0 ? outcome.vector.sums.loss / tokens : 0);
  SetUnits(outcome.vector, &record);
  record.set_grad_norm(scalars.grad_norm);
  record.set_learning_rate(scalars.lr);
  record.set_loss_scale(scalars.loss_scale);
  record.set_tokens(static_cast<int64_t>(tokens));
  record.set_consumed_samples(scalars.consumed_samples);
  record.set_skipped(scalars.skip != 0);
  record.set_skipped_steps(scalars.skipped_steps);
  record.set_step_seconds(times.step_seconds);
  record.set_launch_seconds(times.launch_seconds);
  record.set_model_flops(config.model_flops_per_sample * batch);
  record.set_model_flops_full(config.model_flops_full_per_sample * batch);
  record.set_bubble(outcome.vector.pipeline_wait / world_size);
  const ResidentMemory resident = ReadResidentMemory();
  record.set_host_memory_bytes(resident.own_bytes);
  record.set_mapped_file_bytes(resident.mapped_file_bytes);
  record.set_epoch(config.epoch);
  AddPhases(times.phase_seconds, &record);
  AddMemory(config.memory_bytes, &record);
  if (times.step_seconds > 0) {
    record.set_tokens_per_second(tokens / times.step_seconds);
    const double per_slot = 1 / times.step_seconds / 1e12 / world_size;
    record.set_tflops_per_slot(record.model_flops() * per_slot);
    record.set_tflops_per_slot_full(record.model_flops_full() * per_slot);
  }
  return record;
}

bool IsFinite(const engine::StepVector& vector) {
  return vector.sums.nonfinite == 0 && std::isfinite(vector.sums.sum_squares) &&
         std::isfinite(vector.sums.loss);
}

Status NonfiniteError(int64_t step, const engine::StepVector& vector) {
  return failure::WithCause(
      base::Internal(
          "step {}: the loss is {} and {:.0f} gradient elements are NaN or Inf; the "
          "step's update was not taken. Lower optimizer.lr, lengthen "
          "optimizer.warmup, or set training.nonfinite to skip to go on past such steps",
          step, vector.sums.tokens > 0 ? vector.sums.loss / vector.sums.tokens : vector.sums.loss,
          vector.sums.nonfinite),
      failure::Cause::kNumeric);
}

}  // namespace mt::train
