// One fmt format per kind of line, but for steps, whose metrics are declared. A write that fails is
// logged and does not stop training.
#include "worker/rank/metrics_file.h"

#include <cerrno>
#include <cmath>
#include <optional>
#include <vector>

#include "common/base/log.h"
#include "common/base/plain_text.h"
#include "common/report/loss_units.h"
#include "common/report/step_metrics.h"
#include "megatrain/v1/metric.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::rank {
namespace {

namespace v1 = megatrain::v1;

// JSON has no NaN and no infinity; they are written as strings.
std::string Number(double value) {
  return std::isfinite(value) ? fmt::format("{:.17g}", value) : fmt::format("\"{}\"", value);
}

// A scalar of the step: whole numbers without a point, bools by name.
std::string Value(const report::StepMetric& metric, const v1::StepRecord& step) {
  const double value = metric.Value(step);
  if (metric.is_bool()) return value != 0 ? "true" : "false";
  return metric.is_integer() ? fmt::format("{}", static_cast<int64_t>(value)) : Number(value);
}

// The scalars that declare a place in this file, in the order of these places.
const std::vector<const report::StepMetric*>& Scalars() {
  static const std::vector<const report::StepMetric*> scalars =
      report::StepMetricsInOrder([](const report::StepMetric& metric) {
        const int place = metric.declared().file_order();
        return place == 0 ? std::nullopt : std::optional<int>(place);
      });
  return scalars;
}

// Bytes by kind and seconds by phase as JSON objects, in the order of their enumerations.
std::string Bytes(const v1::StepRecord& step) {
  std::string out;
  for (int i = 0; i < memory::kNumKinds; ++i) {
    const std::string kind(memory::Name(static_cast<memory::Kind>(i)));
    const auto found = step.memory_bytes().find(kind);
    out += fmt::format("{}{}: {}", i == 0 ? "{" : ", ", base::JsonQuoted(kind),
                       found == step.memory_bytes().end() ? 0 : found->second);
  }
  return out + "}";
}

std::string Phases(const v1::StepRecord& step) {
  std::string out;
  for (size_t i = 0; i < engine::kNumStepPhases; ++i) {
    const std::string phase(report::Name(static_cast<report::StepPhase>(i)));
    const auto found = step.phase_seconds().find(phase);
    out += fmt::format("{}{}: {}", i == 0 ? "{" : ", ", base::JsonQuoted(phase),
                       Number(found == step.phase_seconds().end() ? 0 : found->second));
  }
  return out + "}";
}

// The end of an evaluation's object; nothing where there are none.
std::string Samples(const std::vector<train::EvalSample>& samples) {
  std::string out;
  for (const train::EvalSample& one : samples) {
    out += fmt::format("{}{{\"prompt\": {}, \"text\": {}, \"finish\": {}}}",
                       out.empty() ? "" : ", ", base::JsonQuoted(one.prompt),
                       base::JsonQuoted(one.text), base::JsonQuoted(one.finish));
  }
  return out.empty() ? "" : fmt::format(", \"samples\": [{}]", out);
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

void MetricsFile::OnStep(const v1::StepRecord& record) {
  std::string line = fmt::format("{{\"kind\": \"step\", \"step\": {}", record.step());
  for (const report::StepMetric* scalar : Scalars()) {
    if (!scalar->IsReported(record)) continue;
    line += fmt::format(", {}: {}", base::JsonQuoted(scalar->name()), Value(*scalar, record));
  }
  WriteLine(fmt::format("{}, \"phase_seconds\": {}, \"memory_bytes\": {}}}\n", line, Phases(record),
                        Bytes(record)));
}

void MetricsFile::OnEval(const train::EvalRecord& record) {
  std::string units;
  if (const auto perplexity = report::Perplexity(record.loss))
    units += fmt::format(", \"perplexity\": {}", Number(*perplexity));
  if (record.bits_per_byte)
    units += fmt::format(", \"bits_per_byte\": {}", Number(*record.bits_per_byte));
  units += Samples(record.samples);
  WriteLine(fmt::format(
      "{{\"kind\": \"eval\", \"step\": {}, \"split\": {}, \"loss\": {}, \"tokens\": {}, "
      "\"final\": {}{}}}\n",
      record.step, base::JsonQuoted(record.split), Number(record.loss), record.tokens, record.final,
      units));
}

void MetricsFile::OnBench(const megatrain::v1::BenchReport& report) {
  WriteLine(fmt::format(
      "{{\"kind\": \"bench\", \"device\": {}, \"steps\": {}, \"median_step_seconds\": {}, "
      "\"p95_step_seconds\": {}, \"tokens_per_second\": {}, \"tflops_per_slot\": {}, "
      "\"tflops_per_slot_full\": {}, \"megatron_tflops_per_slot\": {}, \"mfu\": {}, "
      "\"product_tflops\": {}, \"kernel_seconds\": {}, \"ratio_to_kernels\": {}}}\n",
      base::JsonQuoted(report.device()), report.steps(), Number(report.median_step_seconds()),
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
      record.step, record.epoch, base::JsonQuoted(record.path), record.bytes,
      Number(record.seconds), Number(record.stall_seconds)));
}

void MetricsFile::OnCheckpointFailed(int64_t step, const Status& why) {
  WriteLine(fmt::format("{{\"kind\": \"checkpoint_failed\", \"step\": {}, \"why\": {}}}\n", step,
                        base::JsonQuoted(base::Message(why))));
}

}  // namespace mt::rank
