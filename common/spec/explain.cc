// The text that job.proto holds about each field, formatted for `mtctl explain` and the reference
// page.
#include <google/protobuf/descriptor.h>

#include "common/spec/known_words.h"
#include "common/spec/print.h"
#include "common/spec/tree.h"
#include "common/spec/validate.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

std::string TypeText(const Field& field) {
  if (field.is_map()) return "map of words to words";
  if (IsSourceList(field)) return "list of prefixes, or of weight, prefix pairs; or {file: PATH}";
  if (IsSection(field)) return "section";
  std::string out;
  switch (RuleOf(field).unit()) {
    case v1::UNIT_DURATION:
      out = "duration (90s, 15m, 2h)";
      break;
    case v1::UNIT_BYTES:
      out = "bytes (64MiB)";
      break;
    case v1::UNIT_COUNT:
      out = "count (1000, 300M, 1.5B)";
      break;
    case v1::UNIT_LENGTH:
      out = "count in the unit of the run's length, or a percentage (100, 2M, 5%)";
      break;
    case v1::UNIT_NAME:
      out = "name ([a-z0-9-], 1 to 63)";
      break;
    case v1::UNIT_PORT_RANGE:
      out = "port range (29500-29600)";
      break;
    case v1::UNIT_TEXT:
      out = field.is_repeated() ? "texts" : "text of several lines";
      break;
    default:
      switch (field.cpp_type()) {
        case Field::CPPTYPE_INT64:
          out = "integer";
          break;
        case Field::CPPTYPE_DOUBLE:
          out = "number";
          break;
        case Field::CPPTYPE_BOOL:
          out = "true or false";
          break;
        case Field::CPPTYPE_ENUM:
          out = "one of " + Join(EnumTexts(*field.enum_type()), ", ");
          break;
        default:
          out = "text";
      }
  }
  return field.is_repeated() ? "list of " + out : out;
}

std::string_view RootText(v1::Root root) {
  switch (root) {
    case v1::ROOT_DATA:
      return "data_root";
    case v1::ROOT_CHECKPOINT:
      return "checkpoint_root";
    case v1::ROOT_LOG:
      return "log_root";
    case v1::ROOT_CACHE:
      return "cache_root";
    default:
      return "";
  }
}

std::string BoundText(const Field& field, double bound) {
  if (RuleOf(field).unit() != v1::UNIT_DURATION) return fmt::format("{}", bound);
  return fmt::format("{}s", bound / 1000);
}

std::string RangeText(const Field& field) {
  const v1::FieldRule& rule = RuleOf(field);
  std::vector<std::string> parts;
  if (rule.has_min()) parts.push_back("at least " + BoundText(field, rule.min()));
  if (rule.has_above()) parts.push_back("above " + BoundText(field, rule.above()));
  if (rule.has_max()) parts.push_back("at most " + BoundText(field, rule.max()));
  if (rule.has_below()) parts.push_back("below " + BoundText(field, rule.below()));
  return Join(parts, ", ");
}

std::string DefaultShown(const Field& field) {
  const v1::FieldRule& rule = RuleOf(field);
  if (rule.required()) return "required";
  return rule.default_().empty() ? "none" : rule.default_();
}

std::string SupportText(const Field& field) {
  const v1::FieldRule& rule = RuleOf(field);
  const ValidateContext built;
  if (IsBuilt(rule.since(), built)) {
    if (field.enum_type() == nullptr) return "yes";
    const std::vector<std::string> now = EnumTexts(*field.enum_type(), &built);
    return now.size() == EnumTexts(*field.enum_type()).size() ? "yes" : "only " + Join(now, ", ");
  }
  if (rule.built_size() > 0) {
    return "only " + Join({rule.built().begin(), rule.built().end()}, ", ");
  }
  const std::string text = DefaultText(field);
  return text.empty() ? "not yet" : "only " + text;
}

void AddLine(std::string_view name, std::string_view value, std::string* out) {
  if (!value.empty()) *out += fmt::format("  {:<10} {}\n", name, value);
}

std::string ExplainField(const std::string& path, const Field& field) {
  std::string out = fmt::format("{}\n  {}\n\n", path, RuleOf(field).help());
  AddLine("type", TypeText(field), &out);
  AddLine("default", DefaultShown(field), &out);
  AddLine("range", RangeText(field), &out);
  if (RuleOf(field).root() != v1::ROOT_NONE) {
    AddLine("path", fmt::format("relative, below the worker's {}", RootText(RuleOf(field).root())),
            &out);
  }
  AddLine("Megatron", RuleOf(field).flag(), &out);
  AddLine("supported", SupportText(field), &out);
  if (RuleOf(field).live()) AddLine("changes", "while the job lives (mtctl update)", &out);
  return out;
}

std::string ExplainSection(const std::string& path, std::string_view help,
                           const pb::Descriptor& type) {
  std::string out = fmt::format("{}\n  {}\n\n", path, help);
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    const std::string shown = IsSection(field) ? "section" : DefaultShown(field);
    out += fmt::format("  {:<20} {:<12} {}\n", field.name(), shown, RuleOf(field).help());
  }
  return out;
}

}  // namespace

StatusOr<std::string> Explain(std::string_view path) {
  if (path == "job") path = "";
  if (path.starts_with("job.")) path.remove_prefix(4);
  const pb::Descriptor& root = *v1::JobSpec::descriptor();
  if (path.empty()) return ExplainSection("job", "One training job, as a job file gives it.", root);
  std::vector<std::string> paths;
  for (const FieldAt& at : AllFields(root, true)) {
    if (at.path == path) {
      return IsSection(*at.field)
                 ? ExplainSection(at.path, RuleOf(*at.field).help(), *at.field->message_type())
                 : ExplainField(at.path, *at.field);
    }
    paths.push_back(at.path);
  }
  const std::string_view last = path.substr(path.rfind('.') + 1);
  std::string meant = FieldCalled(last);
  if (meant.empty()) meant = Nearest(path, paths);
  if (meant.empty()) meant = FieldNamed(last);
  return base::NotFound("no field {}{}", Shown(path),
                        meant.empty() ? "; `mtctl explain job` lists the sections"
                                      : fmt::format("; did you mean {}?", meant));
}

std::string ReferenceTable() {
  std::string out =
      "| field | type | default | range | supported | Megatron | meaning |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const FieldAt& at : AllFields(*v1::JobSpec::descriptor(), false)) {
    const std::string& flag = RuleOf(*at.field).flag();
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", at.path, TypeText(*at.field),
                       DefaultShown(*at.field), RangeText(*at.field), SupportText(*at.field),
                       flag.empty() ? "" : fmt::format("`{}`", flag), RuleOf(*at.field).help());
  }
  return out;
}

}  // namespace mt::spec
