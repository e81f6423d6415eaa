// The declarations of job.proto as code sees them: a field's rule, its enum values' spellings,
// every set field of a message. Internal to common/spec. Pure; thread-safe.
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

const megatrain::v1::FieldRule& RuleOf(const pb::FieldDescriptor& field);
bool IsBuilt(megatrain::v1::Feature feature, const ValidateContext& context);

// How the default "auto" reads: the value is derived.
bool DefaultsToAuto(const pb::FieldDescriptor& field);
// A section: a message other than Data.Source, whose lists are written flat.
bool IsSection(const pb::FieldDescriptor& field);
bool IsSourceList(const pb::FieldDescriptor& field);

// "inverse_sqrt" for DECAY_INVERSE_SQRT of enum Decay.
std::string EnumText(const pb::EnumValueDescriptor& value);
// nullptr: no such value. The UNSPECIFIED value has no spelling.
const pb::EnumValueDescriptor* FindEnumValue(const pb::EnumDescriptor& type, std::string_view text);
// Spellings, in the order of job.proto; with a context only those that are built.
std::vector<std::string> EnumTexts(const pb::EnumDescriptor& type,
                                   const ValidateContext* context = nullptr);

// "a.b" for a = "a", or "b" at the root.
std::string Under(std::string_view section, std::string_view name);

struct FieldAt {
  std::string path;
  const pb::FieldDescriptor* field;
};
// Every field below a message type that is no section, sections themselves first where asked for.
std::vector<FieldAt> AllFields(const pb::Descriptor& type, bool with_sections);
// A type's field names.
std::vector<std::string> FieldNames(const pb::Descriptor& type);

// Calls visit(path, message, field) for every set field that is no section, in the order of
// job.proto.
void ForEachSetField(const pb::Message& message, std::string_view prefix,
                     const std::function<void(const std::string&, const pb::Message&,
                                              const pb::FieldDescriptor&)>& visit);
bool IsSet(const pb::Message& message, const pb::FieldDescriptor& field);

std::string Join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace mt::spec
