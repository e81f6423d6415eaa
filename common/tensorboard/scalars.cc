// Steps go by the declarations of their metrics; evaluations, which are not declared, by name.
#include "common/tensorboard/scalars.h"

#include <fmt/format.h>

#include "common/report/step_metrics.h"
#include "megatrain/v1/metric.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::tensorboard {

namespace v1 = megatrain::v1;

std::string TagOf(std::string_view metric) {
  const size_t slash = metric.find('/');
  const report::StepMetric* found = report::FindStepMetric(metric.substr(0, slash));
  if (found == nullptr || found->declared().event_tag().empty()) return std::string(metric);
  std::string tag = found->declared().event_tag();
  if (slash != std::string_view::npos) tag += metric.substr(slash);
  return tag;
}

std::optional<int64_t> BatchSizes::Next(int64_t step, int64_t consumed_samples) {
  // Before a run's first step nothing is consumed.
  const bool known = step == step_ + 1;
  const int64_t size = consumed_samples - consumed_samples_;
  step_ = step;
  consumed_samples_ = consumed_samples;
  if (!known || size < 0) return std::nullopt;
  return size;
}

std::vector<Scalar> ScalarsOf(const v1::StepRecord& step, std::optional<int64_t> batch) {
  std::vector<Scalar> out;
  if (batch) out.push_back({.tag = kBatchSizeTag, .value = static_cast<double>(*batch)});
  for (const report::StepMetric& metric : report::StepMetrics()) {
    if (metric.is_map()) {
      for (const auto& [key, value] : metric.Entries(step))
        out.push_back({.tag = TagOf(fmt::format("{}/{}", metric.name(), key)), .value = value});
    } else if (metric.IsReported(step)) {
      out.push_back({.tag = TagOf(metric.name()), .value = metric.Value(step)});
    }
  }
  return out;
}

std::vector<Scalar> ScalarsOf(const v1::EvalRecord& eval) {
  const std::string split =
      eval.split().empty() || eval.split() == "valid" ? "validation" : eval.split();
  const char* const end = eval.final() ? " final" : "";
  std::vector<Scalar> out = {
      {.tag = fmt::format("lm loss {}{}", split, end), .value = eval.loss()}};
  if (eval.has_perplexity())
    out.push_back({.tag = fmt::format("lm loss {} ppl{}", split, end), .value = eval.perplexity()});
  if (eval.has_bits_per_byte()) {
    out.push_back({.tag = fmt::format("{} {}{}", TagOf("bits_per_byte"), split, end),
                   .value = eval.bits_per_byte()});
  }
  return out;
}

}  // namespace mt::tensorboard
