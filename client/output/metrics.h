// Step records and stored history in one form: points with named values, printed as rows of a
// table, JSON lines or CSV. Names are the metrics of StepRecord; members of its maps follow a
// slash: "phase_seconds/forward". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/output/render.h"
#include "client/output/style.h"
#include "common/base/status.h"

namespace megatrain::v1 {
class History;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::client {

// The value of one metric at one point.
struct MetricValue {
  double last = 0;
  std::optional<double> min, max;  // extremes, where the point aggregates several steps
};

// One step, or several aggregated ones.
struct MetricPoint {
  int64_t step = 0;     // the last step of the point
  int64_t time_us = 0;  // Unix time
  int64_t epoch = 0;
  int attempt = 0;                  // of the run; 0: not known
  std::vector<MetricValue> values;  // in the order of Metrics::names
  // Of the newest evaluation within its steps.
  std::optional<double> validation_loss, validation_perplexity, validation_bits_per_byte;
};

// Points with the names of their values.
struct Metrics {
  std::vector<std::string> names;
  std::vector<MetricPoint> points;
  bool has_attempts = false;  // the coordinator knows them, of some points at least
};

// Points of a stored history. An evaluation of the validation split is attached to the point in
// which its step lies.
Metrics FromHistory(const megatrain::v1::History& history);
// A single point of a live step, with every metric that the record declares (NaN: not reported) and
// every member of its maps.
Metrics FromStep(const megatrain::v1::StepRecord& step);
// kNotFound, with the metric of a step whose name is nearest.
Status NoSuchMetric(const std::string& job, const std::string& name);
// Restricts to these names, in this order; names that do not occur are skipped.
Metrics Select(const Metrics& metrics, const std::vector<std::string>& names);

// Brings the values into the order of *names. Names that are not in *names yet are added where
// `more`, else left out; the function returns them. A value that is not there is NaN.
std::vector<std::string> Align(bool more, std::vector<std::string>* names, Metrics* metrics);

// One object per point: step, time_us, epoch, attempt where it is known, each metric (with name_min
// and name_max for an aggregated point), and validation_loss, validation_perplexity and
// validation_bits_per_byte where they are known. NaN and infinities are null.
std::string MetricsJsonl(const Metrics& metrics);
// CSV after RFC 4180: a header (if `header`) and one line per point; missing values are empty. A
// metric has columns for minimum and maximum where any point is aggregated.
std::string MetricsCsv(const Metrics& metrics, bool header);
// The metrics that declare a column for it, or with `wide` all; evaluations in bits per byte where
// a point has one.
Rows MetricsRows(const Metrics& metrics, const Style& style, bool wide);

}  // namespace mt::client
