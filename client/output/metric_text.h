// Texts of a step's metrics as StepRecord declares them (proto/megatrain/v1/metric.proto): their
// place, label and format. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/report/step_metrics.h"

namespace megatrain::v1 {
class EvalRecord;
}

namespace mt::client {

// A place where metrics are shown, and what they declare for it.
enum class MetricPlace { kLiveLine, kDescribe, kColumn };

// The metrics that are shown there, in their order.
std::vector<const report::StepMetric*> MetricsShown(MetricPlace place);

// The heading that the metric has there: "Memory, rank 0", "LOSS".
std::string MetricLabel(const report::StepMetric& metric, MetricPlace place);

// One value in the format of that place: "loss 3.2154".
std::string MetricText(const report::StepMetric& metric, MetricPlace place, double value);

// The step's value there, with what it is of: "12.5 % of the pipeline's time, mean over ranks"; of
// a map all entries: "forward 1.000 s, pp_wait 0.500 s". Empty: not reported, or nothing but zeros
// that are not shown.
std::string MetricText(const report::StepMetric& metric, MetricPlace place,
                       const megatrain::v1::StepRecord& step);

// What an evaluation's model wrote, each sample under a heading: the prompt and what follows are
// one text, without what would control a terminal. Lines end with a line feed; "": there are none.
std::string SamplesText(const megatrain::v1::EvalRecord& eval);

}  // namespace mt::client
