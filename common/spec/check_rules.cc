// Conditions on each field by itself: range, form, path and feature, from its rule in job.proto.
#include <cmath>
#include <optional>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/base/plain_text.h"
#include "common/spec/complete.h"
#include "common/spec/roots.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

std::string CheckRange(const v1::FieldRule& rule, double value, const std::string& text) {
  if (!std::isfinite(value)) return "must be finite, is " + text;
  if (rule.has_min() && value < rule.min())
    return fmt::format("must be at least {}, is {}", rule.min(), text);
  if (rule.has_max() && value > rule.max())
    return fmt::format("must be at most {}, is {}", rule.max(), text);
  if (rule.has_above() && value <= rule.above()) {
    return fmt::format("must be above {}, is {}", rule.above(), text);
  }
  if (rule.has_below() && value >= rule.below()) {
    return fmt::format("must be below {}, is {}", rule.below(), text);
  }
  return "";
}

// Durations are compared in milliseconds and printed as durations.
std::string CheckInteger(const Field& field, int64_t value, const std::string& text) {
  const v1::FieldRule& rule = RuleOf(field);
  std::string complaint = CheckRange(rule, static_cast<double>(value), text);
  if (complaint.empty() || rule.unit() != v1::UNIT_DURATION) return complaint;
  const auto shown = [&](double bound) {
    v1::JobSpec job;
    v1::Checkpoint* any = job.mutable_checkpoint();
    any->set_every(static_cast<int64_t>(bound));
    return TextOf(*any, *v1::Checkpoint::descriptor()->FindFieldByName("every"));
  };
  return rule.has_max() && static_cast<double>(value) > rule.max()
             ? fmt::format("must be at most {}, is {}", shown(rule.max()), text)
             : fmt::format("must be at least {}, is {}", shown(rule.min()), text);
}

std::string CheckText(const Field& field, const std::string& text) {
  std::string complaint = CheckStringUnit(field, text);
  if (!complaint.empty() || RuleOf(field).root() == v1::ROOT_NONE) return complaint;
  const Status status = CheckRelative(text);
  return status.ok() ? "" : base::Message(status);
}

std::string CheckEnum(const Field& field, int number, const ValidateContext& context) {
  const pb::EnumDescriptor& type = *field.enum_type();
  const pb::EnumValueDescriptor* value = type.FindValueByNumber(number);
  if (value == nullptr || number == 0) {
    return fmt::format("expected one of {}, got number {}", Join(EnumTexts(type), ", "), number);
  }
  if (IsBuilt(value->options().GetExtension(v1::value_since), context)) return "";
  return fmt::format("{} is not supported yet; supported: {}", EnumText(*value),
                     Join(EnumTexts(type, &context), ", "));
}

// A field of a feature that is not built may still hold a value that means the same as its absence.
std::string CheckFeature(const pb::Message& message, const Field& field,
                         const ValidateContext& context) {
  const v1::FieldRule& rule = RuleOf(field);
  if (IsBuilt(rule.since(), context)) return "";
  std::vector<std::string> accepted(rule.built().begin(), rule.built().end());
  if (accepted.empty()) {
    const std::string text = DefaultText(field);
    if (!text.empty()) accepted.push_back(text);
  }
  if (accepted.empty() || field.is_repeated()) return "not supported yet";
  const std::string text = TextOf(message, field);
  for (const std::string& value : accepted) {
    if (value == text) return "";
  }
  return fmt::format("{} is not supported yet; supported: {}", text, Join(accepted, ", "));
}

std::string CheckValue(const pb::Message& message, const Field& field,
                       const ValidateContext& context) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_INT64:
      return CheckInteger(field, reflection.GetInt64(message, &field), TextOf(message, field));
    case Field::CPPTYPE_DOUBLE:
      return CheckRange(RuleOf(field), reflection.GetDouble(message, &field),
                        TextOf(message, field));
    case Field::CPPTYPE_STRING:
      return CheckText(field, reflection.GetString(message, &field));
    case Field::CPPTYPE_ENUM:
      return CheckEnum(field, reflection.GetEnumValue(message, &field), context);
    default:
      return "";
  }
}

void CheckSources(const pb::Message& message, const Field& field, const std::string& path,
                  FaultList* faults) {
  const pb::Reflection& reflection = *message.GetReflection();
  const int count = reflection.FieldSize(message, &field);
  int weighted = 0;
  for (int i = 0; i < count; ++i) {
    const auto& source =
        static_cast<const v1::Data::Source&>(reflection.GetRepeatedMessage(message, &field, i));
    weighted += source.has_weight() ? 1 : 0;
    const bool is_file = source.has_file();
    const Field& text = *source.GetDescriptor()->FindFieldByName(is_file ? "file" : "prefix");
    std::string complaint = CheckText(text, is_file ? source.file() : source.prefix());
    if (complaint.empty() && is_file && (count > 1 || source.has_prefix() || source.has_weight()))
      complaint = "a file of weights and prefixes stands alone";
    if (complaint.empty() && source.has_weight() &&
        !(source.weight() > 0 && std::isfinite(source.weight()))) {
      complaint = fmt::format("a weight must be above 0, is {}", source.weight());
    }
    if (!complaint.empty()) faults->Add(path, complaint);
  }
  if (weighted != 0 && weighted != count) {
    faults->Add(path, fmt::format("{} of {} data sets have a weight; give all of them one, or none",
                                  weighted, count));
  }
}

void CheckLabels(const pb::Message& message, const Field& field, const std::string& path,
                 FaultList* faults) {
  const pb::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const pb::Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const Status status =
        base::CheckLabel("not a map of words", TextOf(entry, *field.message_type()->map_key()),
                         TextOf(entry, *field.message_type()->map_value()));
    if (!status.ok()) faults->Add(path, base::Message(status));
  }
}

bool IsTextList(const Field& field) {
  return field.is_repeated() && field.cpp_type() == Field::CPPTYPE_STRING;
}

// The first member of the list that is not as it should be.
std::string CheckTexts(const pb::Message& message, const Field& field) {
  const int count = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < count; ++i) {
    const std::string complaint = CheckText(field, TextOf(message, field, i));
    if (!complaint.empty()) return fmt::format("text {}: {}", i + 1, complaint);
  }
  return "";
}

}  // namespace

void CheckRules(const CheckArgs& args) {
  ForEachSetField(*args.job, "",
                  [&](const std::string& path, const pb::Message& message, const Field& field) {
                    if (!args.faults->Clean({path})) return;
                    if (IsSourceList(field)) return CheckSources(message, field, path, args.faults);
                    if (field.is_map()) CheckLabels(message, field, path, args.faults);
                    std::string complaint;
                    if (!field.is_repeated()) complaint = CheckValue(message, field, args.context);
                    if (IsTextList(field)) complaint = CheckTexts(message, field);
                    if (complaint.empty()) complaint = CheckFeature(message, field, args.context);
                    if (!complaint.empty()) args.faults->Add(path, complaint);
                  });
}

}  // namespace mt::spec
