// Columns become scalars by the tags of their metrics; an evaluation follows the steps of its page.
#include "client/output/event_export.h"

#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "common/report/step_metrics.h"
#include "common/tensorboard/event_file.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/step.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;
using tensorboard::EventTime;
using tensorboard::Scalar;

// A column as it is written.
struct Curve {
  std::string tag;
  const v1::History::Column* column;
  bool gaps;   // NaN stands for a value that was not reported
  bool batch;  // tells the sizes of steps
};

std::vector<Curve> CurvesOf(const v1::History& page) {
  std::vector<Curve> curves;
  for (const auto& column : page.columns()) {
    const std::string_view name = column.name();
    const report::StepMetric* metric = report::FindStepMetric(name.substr(0, name.find('/')));
    const bool always = metric != nullptr && !metric->is_map() && !metric->is_integer() &&
                        metric->IsReported(v1::StepRecord());
    curves.push_back({.tag = tensorboard::TagOf(name),
                      .column = &column,
                      .gaps = !always,
                      .batch = name == "consumed_samples"});
  }
  return curves;
}

}  // namespace

std::string EventExport::Page(const v1::History& page) {
  if (page.steps().empty() && page.evals().empty()) return "";
  const std::vector<Curve> curves = CurvesOf(page);
  std::string out;
  for (int i = 0; i < page.steps_size(); ++i) {
    const EventTime at{.step = page.steps(i),
                       .time_us = i < page.times_us_size() ? page.times_us(i) : 0};
    if (!std::exchange(begun_, true)) out += tensorboard::FileHead(at);
    std::vector<Scalar> scalars;
    for (const Curve& curve : curves) {
      if (i >= curve.column->last_size()) continue;
      const double value = curve.column->last(i);
      if (curve.gaps && std::isnan(value)) continue;
      scalars.push_back({.tag = curve.tag, .value = value});
      if (!curve.batch) continue;
      if (const auto size = sizes_.Next(at.step, std::llround(value)))
        scalars.push_back({.tag = tensorboard::kBatchSizeTag, .value = static_cast<double>(*size)});
    }
    out += tensorboard::ScalarRecord(at, scalars);
  }
  for (const v1::EvalRecord& eval : page.evals()) {
    const EventTime at{.step = eval.step(), .time_us = eval.time_us()};
    if (!std::exchange(begun_, true)) out += tensorboard::FileHead(at);
    out += tensorboard::ScalarRecord(at, tensorboard::ScalarsOf(eval));
  }
  return out;
}

std::string EventExport::Again(int64_t first, int64_t time_us) const {
  return begun_ ? tensorboard::SessionStart({.step = first, .time_us = time_us}) : "";
}

}  // namespace mt::client
