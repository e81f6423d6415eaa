// One traversal prints both forms; YAML additionally leaves out defaults that say nothing.
#include "common/spec/print.h"

#include <algorithm>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/base/plain_text.h"
#include "common/spec/job_kind.h"
#include "common/spec/validate.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

// Words to which YAML or our reader gives a meaning.
constexpr std::string_view kWords[] = {"null", "none", "auto", "true", "false",
                                       "yes",  "no",   "on",   "off"};

// True where the text needs no quotes in YAML and is not such a word.
bool IsPlain(std::string_view text) {
  if (text.empty() || std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords))
    return false;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '/';
  };
  return is_word(text.front()) && std::all_of(text.begin(), text.end(), [&](char c) {
           return is_word(c) || c == '.' || c == '-' || c == '+' || c == '%';
         });
}

enum class Form { kYaml, kJson };

std::string StringText(std::string_view text, Form form) {
  return form == Form::kYaml && IsPlain(text) ? std::string(text) : base::JsonQuoted(text);
}

// One value of a scalar field, or of a list at `index`.
std::string ScalarText(const pb::Message& message, const Field& field, int index, Form form) {
  std::string text = TextOf(message, field, index);
  const v1::Unit unit = RuleOf(field).unit();
  const bool is_word =
      field.cpp_type() == Field::CPPTYPE_STRING || field.cpp_type() == Field::CPPTYPE_ENUM;
  if (field.cpp_type() == Field::CPPTYPE_ENUM && form == Form::kYaml) return text;
  if (is_word) return StringText(text, form);
  if (unit == v1::UNIT_DURATION || unit == v1::UNIT_BYTES)
    return form == Form::kJson ? base::JsonQuoted(text) : text;
  return text;
}

// The file that lists the data sets; "" where they are listed here.
std::string SourceFile(const pb::Message& message, const Field& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  if (reflection.FieldSize(message, &field) != 1) return "";
  return static_cast<const v1::Data::Source&>(reflection.GetRepeatedMessage(message, &field, 0))
      .file();
}

std::vector<std::string> SourceItems(const pb::Message& message, const Field& field, Form form) {
  const pb::Reflection& reflection = *message.GetReflection();
  std::vector<const v1::Data::Source*> sources;
  bool weights = false;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    sources.push_back(
        static_cast<const v1::Data::Source*>(&reflection.GetRepeatedMessage(message, &field, i)));
    weights = weights || sources.back()->has_weight();
  }
  std::vector<std::string> out;
  for (const v1::Data::Source* source : sources) {
    if (weights) out.push_back(fmt::format("{}", source->has_weight() ? source->weight() : 1.0));
    out.push_back(StringText(source->prefix(), form));
  }
  return out;
}

// The "key": value pairs of a map in the order of their keys.
std::vector<std::string> MapItems(const pb::Message& message, const Field& field, Form form) {
  const pb::Reflection& reflection = *message.GetReflection();
  std::vector<std::string> out;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const pb::Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    out.push_back(fmt::format("{}: {}",
                              base::JsonQuoted(TextOf(entry, *field.message_type()->map_key())),
                              StringText(TextOf(entry, *field.message_type()->map_value()), form)));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string ValueText(const pb::Message& message, const Field& field, Form form) {
  if (field.is_map()) return fmt::format("{{{}}}", Join(MapItems(message, field, form), ", "));
  if (IsSourceList(field)) {
    const std::string file = SourceFile(message, field);
    if (!file.empty())
      return fmt::format("{{{}: {}}}", StringText("file", form), StringText(file, form));
    return fmt::format("[{}]", Join(SourceItems(message, field, form), ", "));
  }
  if (!field.is_repeated()) return ScalarText(message, field, -1, form);
  const int count = message.GetReflection()->FieldSize(message, &field);
  std::vector<std::string> items;
  items.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    items.push_back(ScalarText(message, field, i, form));
  }
  return fmt::format("[{}]", Join(items, ", "));
}

// True for a default of a feature that is not built: it says nothing that the user could change.
bool IsUnbuiltDefault(const pb::Message& message, const Field& field) {
  const v1::FieldRule& rule = RuleOf(field);
  if (field.is_repeated() || IsBuilt(rule.since(), ValidateContext{})) return false;
  const std::string text = TextOf(message, field);
  if (!DefaultsToAuto(field)) return text == DefaultText(field);
  return rule.built_size() == 1 && rule.built(0) == text;
}

using Sections = std::vector<const pb::Descriptor*>;

// Sections whose defaults have no effect on this job.
Sections UnusedSections(const v1::JobSpec& job) {
  Sections unused;
  if (job.model().position() != v1::Model::POSITION_ROPE) {
    unused.push_back(v1::Model::Rope::descriptor());
    unused.push_back(v1::Model::Rope::Scaling::descriptor());
  }
  if (job.training().precision() != v1::Training::PRECISION_FP16)
    unused.push_back(v1::Training::LossScale::descriptor());
  if (!KindOf(job).is_timed) unused.push_back(v1::Bench::descriptor());
  if (job.optimizer().decay() != v1::Optimizer::DECAY_WSD)
    unused.push_back(v1::Optimizer::Wsd::descriptor());
  return unused;
}

bool IsUnusedDefault(const pb::Message& message, const Field& field, const Sections& unused) {
  return std::ranges::find(unused, message.GetDescriptor()) != unused.end() &&
         !DefaultsToAuto(field) && TextOf(message, field) == DefaultText(field);
}

std::string YamlSection(const pb::Message& message, const Sections& unused,
                        const std::string& indent) {
  std::string out;
  const pb::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    if (!IsSet(message, field)) continue;
    if (IsSection(field)) {
      const std::string body =
          YamlSection(message.GetReflection()->GetMessage(message, &field), unused, indent + "  ");
      if (!body.empty()) out += fmt::format("{}{}:\n{}", indent, field.name(), body);
    } else if (!IsUnbuiltDefault(message, field) && !IsUnusedDefault(message, field, unused)) {
      out +=
          fmt::format("{}{}: {}\n", indent, field.name(), ValueText(message, field, Form::kYaml));
    }
  }
  return out;
}

std::string JsonSection(const pb::Message& message, const std::string& indent) {
  std::vector<std::string> members;
  const pb::Descriptor& type = *message.GetDescriptor();
  const std::string inner = indent + "  ";
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    if (!IsSet(message, field)) continue;
    const std::string value =
        IsSection(field) ? JsonSection(message.GetReflection()->GetMessage(message, &field), inner)
                         : ValueText(message, field, Form::kJson);
    if (value != "{}") members.push_back(fmt::format("{}\"{}\": {}", inner, field.name(), value));
  }
  if (members.empty()) return "{}";
  return fmt::format("{{\n{}\n{}}}", Join(members, ",\n"), indent);
}

}  // namespace

std::string ToYaml(const v1::JobSpec& job) { return YamlSection(job, UnusedSections(job), ""); }

std::string ToJson(const v1::JobSpec& job) { return JsonSection(job, ""); }

std::string Digest(const v1::JobSpec& job, std::string_view section) {
  if (section.empty()) return base::Hash128Hex(ToJson(job));
  const Field* field = v1::JobSpec::descriptor()->FindFieldByName(std::string(section));
  CHECK(field != nullptr && IsSection(*field)) << "the job has no section " << section;
  return base::Hash128Hex(JsonSection(job.GetReflection()->GetMessage(job, field), ""));
}

}  // namespace mt::spec
