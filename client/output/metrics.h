// Step records and their history in one form: points with named values, as rows of a table, JSON
// lines or CSV. Names are the fields of StepRecord, members of its maps with a slash:
// "phase_seconds/forward". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/output/render.h"
#include "client/output/style.h"

namespace megatrain::v1 {
class History;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::client {

struct MetricValue {
  double last = 0;
  std::optional<double> min, max;  // set where the point stands for many steps
};

struct MetricPoint {
  int64_t step = 0;  // the last one that it stands for
  int64_t time_us = 0;
  int64_t epoch = 0;
  std::vector<MetricValue> values;        // in the order of Metrics::names
  std::optional<double> validation_loss;  // of the newest evaluation among its steps
};

struct Metrics {
  std::vector<std::string> names;
  std::vector<MetricPoint> points;
};

// Evaluations of the validation split are joined to the point whose steps they follow.
Metrics FromHistory(const megatrain::v1::History& history);
// One live step. Every scalar of the record and every member of its maps.
Metrics FromStep(const megatrain::v1::StepRecord& step);
// Only these names, in this order; those that are not there are left out.
Metrics Select(const Metrics& metrics, const std::vector<std::string>& names);

// One object per point: step, time_us, epoch, then each name (and name_min, name_max of a point of
// many steps), validation_loss where there is one. NaN and infinities are null.
std::string MetricsJsonl(const Metrics& metrics);
// A header (unless left out) and one line per point, RFC 4180; what there is not is empty. A name
// has columns for minimum and maximum where any point stands for many steps.
std::string MetricsCsv(const Metrics& metrics, bool header);
// The figures that matter most; wide: every name.
Rows MetricsRows(const Metrics& metrics, const Style& style, bool wide);

}  // namespace mt::client
