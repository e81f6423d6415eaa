// The declarations of job.proto as seen by code: a field's rule, the spelling of enum values, and
// iteration over the set fields of a message. Internal to common/spec. Pure; thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace google::protobuf {
class Descriptor;
class EnumDescriptor;
class EnumValueDescriptor;
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace megatrain::v1 {
class FieldRule;
enum Feature : int;
}  // namespace megatrain::v1

namespace mt::spec {

struct ValidateContext;
namespace pb = google::protobuf;

// The field's options in job.proto; an empty rule where it has none.
const megatrain::v1::FieldRule& RuleOf(const pb::FieldDescriptor& field);
// True where `context` says that the feature is built.
bool IsBuilt(megatrain::v1::Feature feature, const ValidateContext& context);

// True for the default "auto": the value is derived.
bool DefaultsToAuto(const pb::FieldDescriptor& field);
// True for a section: a message other than Data.Source, lists of which are written flat.
bool IsSection(const pb::FieldDescriptor& field);
bool IsSourceList(const pb::FieldDescriptor& field);

// The spelling of an enum value in a job file: "inverse_sqrt" for DECAY_INVERSE_SQRT of enum Decay.
std::string EnumText(const pb::EnumValueDescriptor& value);
// The value with this spelling, or nullptr. The UNSPECIFIED value has none.
const pb::EnumValueDescriptor* FindEnumValue(const pb::EnumDescriptor& type, std::string_view text);
// All spellings in the order of job.proto; with a context only those of built features.
std::vector<std::string> EnumTexts(const pb::EnumDescriptor& type,
                                   const ValidateContext* context = nullptr);

// The path of a field: "a.b" for "a" and "b"; "b" at the root (section "").
std::string Under(std::string_view section, std::string_view name);

// A field with its path from the root of the job.
struct FieldAt {
  std::string path;
  const pb::FieldDescriptor* field;
};
// Every field of a message type and of its sections; the sections themselves come before their
// fields where `with_sections`.
std::vector<FieldAt> AllFields(const pb::Descriptor& type, bool with_sections);
// The names of a type's fields, in the order of declaration.
std::vector<std::string> FieldNames(const pb::Descriptor& type);

// Calls visit(path, message, field) for every set field that is not a section, in the order of
// job.proto; `prefix` is the path of `message`.
void ForEachSetField(const pb::Message& message, std::string_view prefix,
                     const std::function<void(const std::string&, const pb::Message&,
                                              const pb::FieldDescriptor&)>& visit);
// True where the field has presence and is set, or is a list or map with members.
bool IsSet(const pb::Message& message, const pb::FieldDescriptor& field);

std::string Join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace mt::spec
