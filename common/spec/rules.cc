// Access to job.proto's custom options by protobuf reflection.
#include "common/spec/rules.h"

#include <cctype>

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

// The prefix of an enum's value names: "GradReduce" gives "GRAD_REDUCE_".
std::string EnumPrefix(const pb::EnumDescriptor& type) {
  std::string out;
  for (const char c : type.name()) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0 && !out.empty()) out += '_';
    out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return out + "_";
}

void Collect(const pb::Descriptor& type, const std::string& prefix, bool with_sections,
             std::vector<FieldAt>* out) {
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor* field = type.field(i);
    std::string path = Under(prefix, field->name());
    if (!IsSection(*field)) {
      out->push_back({.path = std::move(path), .field = field});
      continue;
    }
    if (with_sections) out->push_back({.path = path, .field = field});
    Collect(*field->message_type(), path, with_sections, out);
  }
}

}  // namespace

const v1::FieldRule& RuleOf(const pb::FieldDescriptor& field) {
  return field.options().GetExtension(v1::rule);
}

bool IsBuilt(v1::Feature feature, const ValidateContext& context) {
  switch (feature) {
    case v1::FEATURE_CORE:
      return true;
    case v1::FEATURE_SERVICE:
      return context.service;
    case v1::FEATURE_PARALLELISM:
      return context.parallelism;
    case v1::FEATURE_CUDA:
      return context.cuda;
    default:
      return false;
  }
}

bool DefaultsToAuto(const pb::FieldDescriptor& field) { return RuleOf(field).default_() == "auto"; }

bool IsSourceList(const pb::FieldDescriptor& field) {
  return field.message_type() == v1::Data::Source::descriptor();
}

bool IsSection(const pb::FieldDescriptor& field) {
  return field.message_type() != nullptr && !field.is_repeated();
}

std::string EnumText(const pb::EnumValueDescriptor& value) {
  std::string out = value.name().substr(EnumPrefix(*value.type()).size());
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

const pb::EnumValueDescriptor* FindEnumValue(const pb::EnumDescriptor& type,
                                             std::string_view text) {
  for (int i = 0; i < type.value_count(); ++i) {
    const pb::EnumValueDescriptor* value = type.value(i);
    if (value->number() != 0 && EnumText(*value) == text) return value;
  }
  return nullptr;
}

std::vector<std::string> EnumTexts(const pb::EnumDescriptor& type, const ValidateContext* context) {
  std::vector<std::string> out;
  for (int i = 0; i < type.value_count(); ++i) {
    const pb::EnumValueDescriptor& value = *type.value(i);
    if (value.number() == 0) continue;
    if (context != nullptr && !IsBuilt(value.options().GetExtension(v1::value_since), *context))
      continue;
    out.push_back(EnumText(value));
  }
  return out;
}

std::string Under(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

std::vector<FieldAt> AllFields(const pb::Descriptor& type, bool with_sections) {
  std::vector<FieldAt> out;
  Collect(type, "", with_sections, &out);
  return out;
}

std::vector<std::string> FieldNames(const pb::Descriptor& type) {
  std::vector<std::string> out;
  out.reserve(static_cast<size_t>(type.field_count()));
  for (int i = 0; i < type.field_count(); ++i) out.push_back(type.field(i)->name());
  return out;
}

bool IsSet(const pb::Message& message, const pb::FieldDescriptor& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

void ForEachSetField(const pb::Message& message, std::string_view prefix,
                     const std::function<void(const std::string&, const pb::Message&,
                                              const pb::FieldDescriptor&)>& visit) {
  const pb::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    if (!IsSet(message, field)) continue;
    const std::string path = Under(prefix, field.name());
    if (IsSection(field)) {
      ForEachSetField(message.GetReflection()->GetMessage(message, &field), path, visit);
    } else {
      visit(path, message, field);
    }
  }
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

}  // namespace mt::spec
