// One fmt format per kind of line. A write that fails is logged and does not stop training.
#include "worker/rank/metrics_file.h"

#include <cerrno>
#include <cmath>

#include "common/base/log.h"
#include "megatrain/v1/types.pb.h"

namespace mt::rank {
namespace {

// JSON has no NaN and no infinity; they are written as strings.
std::string Number(double value) {
  return std::isfinite(value) ? fmt::format("{:.17g}", value) : fmt::format("\"{}\"", value);
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Bytes by kind as a JSON object.
std::string Bytes(const memory::BytesByKind& bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    out += fmt::format("{}{}: {}", i == 0 ? "{" : ", ",
                       Quoted(memory::Name(static_cast<memory::Kind>(i))), bytes[i]);
  }
  return out + "}";
}

std::string Phases(const engine::PhaseSeconds& seconds) {
  std::string out;
  for (size_t i = 0; i < seconds.size(); ++i) {
    out += fmt::format("{}{}: {}", i == 0 ? "{" : ", ",
                       Quoted(report::Name(static_cast<report::StepPhase>(i))), Number(seconds[i]));
  }
  return out + "}";
}

}  // namespace

StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return base::ErrnoError(errno, "open " + path);
  return std::unique_ptr<MetricsFile>(new MetricsFile(file));
}

MetricsFile::~MetricsFile() { std::fclose(file_); }

void MetricsFile::WriteLine(const std::string& line) {
  const bool written =
      std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0;
  if (!written) log::Error("the metrics file cannot be written");
}

void MetricsFile::OnRunInfo(const train::RunInfo& info) {
  WriteLine(fmt::format(
      "{{\"kind\": \"run\", \"total_steps\": {}, \"resumed_from_step\": {}, \"epoch\": {}, "
      "\"parameters\": {}}}\n",
      info.total_steps, info.resumed_from_step, info.epoch, info.parameters));
}

void MetricsFile::OnStep(const train::StepRecord& record) {
  WriteLine(fmt::format(
      "{{\"kind\": \"step\", \"step\": {}, \"loss\": {}, \"grad_norm\": {}, \"learning_rate\": {}, "
      "\"tokens\": {}, \"consumed_samples\": {}, \"skipped\": {}, \"skipped_steps\": {}, "
      "\"loss_scale\": {}, \"step_seconds\": {}, "
      "\"tokens_per_second\": {}, \"tflops_per_slot\": {}, \"model_flops\": {}, \"bubble\": {}, "
      "\"phase_seconds\": {}, \"memory_bytes\": {}}}\n",
      record.step, Number(record.loss), Number(record.grad_norm), Number(record.learning_rate),
      record.tokens, record.consumed_samples, record.skipped, record.skipped_steps,
      Number(record.loss_scale), Number(record.step_seconds), Number(record.tokens_per_second),
      Number(record.tflops_per_slot), Number(record.model_flops), Number(record.bubble),
      Phases(record.phase_seconds), Bytes(record.memory_bytes)));
}

void MetricsFile::OnEval(const train::EvalRecord& record) {
  WriteLine(fmt::format(
      "{{\"kind\": \"eval\", \"step\": {}, \"split\": {}, \"loss\": {}, \"tokens\": {}, "
      "\"final\": {}}}\n",
      record.step, Quoted(record.split), Number(record.loss), record.tokens, record.final));
}

void MetricsFile::OnBench(const megatrain::v1::BenchReport& report) {
  WriteLine(fmt::format(
      "{{\"kind\": \"bench\", \"device\": {}, \"steps\": {}, \"median_step_seconds\": {}, "
      "\"p95_step_seconds\": {}, \"tokens_per_second\": {}, \"tflops_per_slot\": {}, "
      "\"tflops_per_slot_full\": {}, \"megatron_tflops_per_slot\": {}, \"mfu\": {}, "
      "\"product_tflops\": {}, \"kernel_seconds\": {}, \"ratio_to_kernels\": {}}}\n",
      Quoted(report.device()), report.steps(), Number(report.median_step_seconds()),
      Number(report.p95_step_seconds()), Number(report.tokens_per_second()),
      Number(report.tflops_per_slot()), Number(report.tflops_per_slot_full()),
      Number(report.megatron_tflops_per_slot()), Number(report.mfu()),
      Number(report.product().tflops()), Number(report.kernel_seconds()),
      Number(report.ratio_to_kernels())));
}

void MetricsFile::OnCheckpointSaved(const train::CheckpointRecord& record) {
  WriteLine(fmt::format(
      "{{\"kind\": \"checkpoint\", \"step\": {}, \"epoch\": {}, \"path\": {}, \"bytes\": {}, "
      "\"seconds\": {}, \"stall_seconds\": {}}}\n",
      record.step, record.epoch, Quoted(record.path), record.bytes, Number(record.seconds),
      Number(record.stall_seconds)));
}

void MetricsFile::OnCheckpointFailed(int64_t step, const Status& why) {
  WriteLine(fmt::format("{{\"kind\": \"checkpoint_failed\", \"step\": {}, \"why\": {}}}\n", step,
                        Quoted(base::Message(why))));
}

}  // namespace mt::rank
