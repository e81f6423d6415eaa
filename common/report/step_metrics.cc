// Values are read and written by protobuf's reflection, through descriptors that are looked up
// once.
#include "common/report/step_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <google/protobuf/descriptor.h>

#include "common/base/check.h"
#include "megatrain/v1/step.pb.h"

namespace mt::report {
namespace {

namespace v1 = megatrain::v1;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

double Read(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? 1 : 0;
    default:
      return reflection.GetDouble(message, &field);
  }
}

// The field itself, or what a map's entries hold.
const FieldDescriptor& Holder(const FieldDescriptor& field) {
  return field.is_map() ? *field.message_type()->map_value() : field;
}

std::vector<StepMetric> Declared() {
  std::vector<StepMetric> metrics;
  const google::protobuf::Descriptor& record = *v1::StepRecord::descriptor();
  for (int i = 0; i < record.field_count(); ++i) {
    if (record.field(i)->options().HasExtension(v1::metric)) metrics.emplace_back(record.field(i));
  }
  std::ranges::sort(metrics, {}, &StepMetric::number);
  return metrics;
}

}  // namespace

StepMetric::StepMetric(const FieldDescriptor* field)
    : field_(field), declared_(&field->options().GetExtension(v1::metric)) {
  CHECK(field->containing_type() == v1::StepRecord::descriptor()) << field->full_name();
  CHECK(field->options().HasExtension(v1::metric)) << name() << " declares no metric";
  CHECK(field->is_map() || !field->is_repeated()) << name();
  const FieldDescriptor::CppType type = Holder(*field).cpp_type();
  CHECK(type == FieldDescriptor::CPPTYPE_INT64 || type == FieldDescriptor::CPPTYPE_BOOL ||
        type == FieldDescriptor::CPPTYPE_DOUBLE)
      << name() << " is no int64, bool or double";
}

const std::string& StepMetric::name() const { return field_->name(); }
int StepMetric::number() const { return field_->number(); }
bool StepMetric::is_map() const { return field_->is_map(); }
bool StepMetric::is_bool() const { return field_->cpp_type() == FieldDescriptor::CPPTYPE_BOOL; }
bool StepMetric::is_integer() const {
  return Holder(*field_).cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE;
}

bool StepMetric::IsReported(const v1::StepRecord& step) const {
  return !field_->has_presence() || v1::StepRecord::GetReflection()->HasField(step, field_);
}

double StepMetric::Value(const v1::StepRecord& step) const {
  CHECK(!is_map()) << name();
  return IsReported(step) ? Read(step, *field_) : std::numeric_limits<double>::quiet_NaN();
}

void StepMetric::SetValue(v1::StepRecord* step, double value) const {
  CHECK(!is_map()) << name();
  const google::protobuf::Reflection& reflection = *v1::StepRecord::GetReflection();
  const bool missing = std::isnan(value);
  if (missing && field_->has_presence()) {
    reflection.ClearField(step, field_);
    return;
  }
  switch (field_->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      reflection.SetInt64(step, field_, missing ? 0 : static_cast<int64_t>(value));
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection.SetBool(step, field_, !missing && value != 0);
      break;
    default:
      reflection.SetDouble(step, field_, value);
  }
}

std::vector<std::pair<std::string, double>> StepMetric::Entries(const v1::StepRecord& step) const {
  CHECK(is_map()) << name();
  const google::protobuf::Reflection& reflection = *v1::StepRecord::GetReflection();
  const google::protobuf::Descriptor& entry = *field_->message_type();
  std::vector<std::pair<std::string, double>> entries;
  for (int i = 0; i < reflection.FieldSize(step, field_); ++i) {
    const Message& one = reflection.GetRepeatedMessage(step, field_, i);
    entries.emplace_back(one.GetReflection()->GetString(one, entry.map_key()),
                         Read(one, *entry.map_value()));
  }
  std::ranges::sort(entries);
  return entries;
}

const std::vector<StepMetric>& StepMetrics() {
  static const std::vector<StepMetric> metrics = Declared();
  return metrics;
}

const StepMetric* FindStepMetric(std::string_view name) {
  const auto found = std::ranges::find(StepMetrics(), name, &StepMetric::name);
  return found == StepMetrics().end() ? nullptr : &*found;
}

std::vector<const StepMetric*> StepMetricsInOrder(
    const std::function<std::optional<int>(const StepMetric&)>& place) {
  std::vector<std::tuple<int, int, const StepMetric*>> placed;
  for (const StepMetric& metric : StepMetrics()) {
    const std::optional<int> at = place(metric);
    if (at) placed.emplace_back(*at == 0 ? metric.number() : *at, metric.number(), &metric);
  }
  std::ranges::sort(placed);
  std::vector<const StepMetric*> metrics;
  metrics.reserve(placed.size());
  for (const auto& [at, number, metric] : placed) metrics.push_back(metric);
  return metrics;
}

}  // namespace mt::report
