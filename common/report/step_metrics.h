// The metrics of a training step: the fields of StepRecord that declare one by an option
// (proto/megatrain/v1/metric.proto), with their values. Whoever stores, serves or shows metrics
// goes through them instead of naming fields, so that a new metric is there as soon as it is
// declared.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace google::protobuf {
class FieldDescriptor;
}

namespace megatrain::v1 {
class Metric;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::report {

// One field. Thread-safe; reading a value costs one indirect call and allocates nothing.
class StepMetric {
 public:
  // CHECKs that the field is one of StepRecord's, declares a metric, and holds a number, a bool, or
  // a map from names to numbers.
  explicit StepMetric(const google::protobuf::FieldDescriptor* field);

  const std::string& name() const;
  int number() const;
  // Valid until the program ends.
  const megatrain::v1::Metric& declared() const { return *declared_; }
  bool is_map() const;
  // True where values are whole numbers (or bools).
  bool is_integer() const;
  bool is_bool() const;

  // False if the field is `optional` and not set: the record is of a program that did not know it,
  // or had no value.
  bool IsReported(const megatrain::v1::StepRecord& step) const;
  // The value; a bool is 0 or 1, integers are exact up to 2^53. NaN: not reported. No maps (CHECK).
  double Value(const megatrain::v1::StepRecord& step) const;
  // The opposite. NaN leaves an `optional` field unset, and makes others NaN or, if they are
  // integers, 0. No maps (CHECK).
  void SetValue(megatrain::v1::StepRecord* step, double value) const;
  // The entries of a map by name. Copies the map: not for each step of many jobs.
  std::vector<std::pair<std::string, double>> Entries(const megatrain::v1::StepRecord& step) const;

 private:
  const google::protobuf::FieldDescriptor* field_;
  const megatrain::v1::Metric* declared_;
};

// All, by field number; made at the first call.
const std::vector<StepMetric>& StepMetrics();

// The metric of that field, or nullptr.
const StepMetric* FindStepMetric(std::string_view name);

// Those that have a place, by place and then by field number. A place of 0 stands for the field's
// number. Pointers are valid until the program ends.
std::vector<const StepMetric*> StepMetricsInOrder(
    const std::function<std::optional<int>(const StepMetric&)>& place);

}  // namespace mt::report
