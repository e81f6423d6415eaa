// Conversion by the field's type, and by the unit in its rule where the type alone does not decide.
#include "common/spec/values.h"

#include <charconv>
#include <memory>
#include <optional>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/base/check.h"
#include "common/base/plain_text.h"
#include "common/spec/fault.h"
#include "common/spec/known_words.h"
#include "common/spec/number.h"
#include "common/spec/presets.h"
#include "common/spec/text_forms.h"
#include "common/spec/tree.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

constexpr size_t kMaxString = 4096;
constexpr size_t kMaxText = 256 * 1024;  // of UNIT_TEXT

std::string Expected(std::string_view what, std::string_view text) {
  return fmt::format("expected {}, got \"{}\"", what, Shown(text));
}

std::string SetInteger(const Field& field, std::string_view text, pb::Message* message) {
  std::optional<int64_t> value;
  std::string_view expected = "a whole number";
  switch (RuleOf(field).unit()) {
    case v1::UNIT_DURATION:
      value = ParseDuration(text);
      expected = "a duration such as 90s, 15m or 2h";
      break;
    case v1::UNIT_BYTES:
      value = ParseBytes(text);
      expected = "a size such as 64MiB";
      break;
    case v1::UNIT_COUNT:
      value = ParseCount(text);
      expected = "a whole count such as 1000, 300M or 1.5B";
      break;
    default:
      value = ParseInteger(text);
  }
  if (!value) return Expected(expected, text);
  if (field.is_repeated()) {
    message->GetReflection()->AddInt64(message, &field, *value);
  } else {
    message->GetReflection()->SetInt64(message, &field, *value);
  }
  return "";
}

// The tokenizer of ids made elsewhere has two names.
std::string_view OwnName(const pb::EnumDescriptor& type, std::string_view text) {
  return text == "ids" && &type == v1::Data::Tokenizer::Type_descriptor() ? "null" : text;
}

std::string SetEnum(const Field& field, std::string_view text, pb::Message* message) {
  const pb::EnumDescriptor& type = *field.enum_type();
  const pb::EnumValueDescriptor* value = FindEnumValue(type, OwnName(type, text));
  if (value != nullptr) {
    message->GetReflection()->SetEnum(message, &field, value);
    return "";
  }
  const std::vector<std::string> texts = EnumTexts(type);
  std::string meant = ValueCalled(text);
  if (FindEnumValue(type, meant) == nullptr) meant = Nearest(text, texts);
  if (!meant.empty()) return fmt::format("no value \"{}\"; did you mean {}?", Shown(text), meant);
  return Expected("one of " + Join(texts, ", "), text);
}

std::string SetString(const Field& field, std::string_view text, pb::Message* message) {
  std::string value(text);
  if (RuleOf(field).unit() == v1::UNIT_LENGTH) {
    if (const std::optional<Length> length = ParseLength(text)) value = FormatLength(*length);
  }
  std::string complaint = CheckStringUnit(field, value);
  if (!complaint.empty()) return complaint;
  if (field.is_repeated()) {
    message->GetReflection()->AddString(message, &field, std::move(value));
  } else {
    message->GetReflection()->SetString(message, &field, std::move(value));
  }
  return "";
}

std::string IntegerText(const Field& field, int64_t value) {
  switch (RuleOf(field).unit()) {
    case v1::UNIT_DURATION:
      return FormatDuration(value);
    case v1::UNIT_BYTES:
      return FormatBytes(value);
    default:
      return fmt::format("{}", value);
  }
}

std::string CheckPreset(const std::string& text) {
  if (FindPreset(text) != nullptr) return "";
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.emplace_back(preset.name);
  const std::string nearest = Nearest(text, names);
  if (nearest.empty()) return Expected("a preset (`mtctl get presets` lists them)", text);
  return fmt::format("no preset \"{}\"; did you mean {}?", Shown(text), nearest);
}

}  // namespace

std::string SetFromText(const Field& field, std::string_view text, pb::Message* message) {
  const pb::Reflection& reflection = *message->GetReflection();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_INT64:
      return SetInteger(field, text, message);
    case Field::CPPTYPE_DOUBLE: {
      const std::optional<double> value = ParseReal(text);
      if (!value) return Expected("a finite number", text);
      reflection.SetDouble(message, &field, *value);
      return "";
    }
    case Field::CPPTYPE_BOOL:
      if (text != "true" && text != "false") return Expected("true or false", text);
      reflection.SetBool(message, &field, text == "true");
      return "";
    case Field::CPPTYPE_ENUM:
      return SetEnum(field, text, message);
    case Field::CPPTYPE_STRING:
      return SetString(field, text, message);
    default:
      CHECK(false) << "job.proto has a type without a text form: " << field.full_name();
      return "";
  }
}

std::string TextOf(const pb::Message& message, const Field& field, int index) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_INT64:
      return IntegerText(field, index >= 0 ? reflection.GetRepeatedInt64(message, &field, index)
                                           : reflection.GetInt64(message, &field));
    case Field::CPPTYPE_DOUBLE:
      return fmt::format("{}", reflection.GetDouble(message, &field));
    case Field::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case Field::CPPTYPE_ENUM: {
      const int number = reflection.GetEnumValue(message, &field);
      const pb::EnumValueDescriptor* value = field.enum_type()->FindValueByNumber(number);
      return value == nullptr || number == 0 ? fmt::format("{}", number) : EnumText(*value);
    }
    case Field::CPPTYPE_STRING:
      return index >= 0 ? reflection.GetRepeatedString(message, &field, index)
                        : reflection.GetString(message, &field);
    default:
      CHECK(false) << "job.proto has a type without a text form: " << field.full_name();
      return "";
  }
}

std::string DefaultText(const Field& field) {
  const std::string& text = RuleOf(field).default_();
  if (text.empty() || text == "auto") return "";
  const std::unique_ptr<pb::Message> message(
      pb::MessageFactory::generated_factory()->GetPrototype(field.containing_type())->New());
  const std::string complaint = SetFromText(field, text, message.get());
  CHECK(complaint.empty()) << field.full_name() << ": " << complaint;
  return TextOf(*message, field);
}

std::string CheckStringUnit(const Field& field, const std::string& text) {
  const bool free_text = RuleOf(field).unit() == v1::UNIT_TEXT;
  const size_t most = free_text ? kMaxText : kMaxString;
  if (text.size() > most) return fmt::format("longer than {} bytes", most);
  if (free_text) {
    const std::string found = base::ControlIn(text);
    return found.empty() ? "" : "has " + found;
  }
  if (!base::IsPlainText(text)) return "has a control character, or is no UTF-8";
  switch (RuleOf(field).unit()) {
    case v1::UNIT_NAME:
      if (text.starts_with('-')) return Expected("a name that does not begin with -", text);
      return IsName(text) ? "" : Expected("1 to 63 of a-z, 0-9 and -", text);
    case v1::UNIT_LENGTH:
      return ParseLength(text) ? ""
                               : Expected("a count or a percentage, such as 100, 2M or 5%", text);
    case v1::UNIT_PORT_RANGE:
      return text == "ephemeral" || ParsePortRange(text)
                 ? ""
                 : Expected("ephemeral or a range such as 29500-29600", text);
    case v1::UNIT_SPLIT:
      return ParseSplit(text) ? "" : Expected("up to three weights such as 969,30,1", text);
    case v1::UNIT_PRESET:
      return CheckPreset(text);
    default:
      return "";
  }
}

}  // namespace mt::spec
