// What job.proto declares of each field, without the descriptors.
#include "common/spec/field_words.h"

#include <algorithm>

#include <google/protobuf/descriptor.h>

#include "common/spec/presets.h"
#include "common/spec/rules.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

std::vector<std::string> ValuesOf(const Field& field, const ValidateContext& built) {
  std::vector<std::string> values;
  if (field.is_map() || field.is_repeated()) return values;
  const v1::FieldRule& rule = RuleOf(field);
  if (!IsBuilt(rule.since(), built)) {
    values.assign(rule.built().begin(), rule.built().end());
  } else if (field.enum_type() != nullptr) {
    values = EnumTexts(*field.enum_type(), &built);
  } else if (field.cpp_type() == Field::CPPTYPE_BOOL) {
    values = {"true", "false"};
  } else if (rule.unit() == v1::UNIT_PRESET) {
    for (const Preset& preset : Presets()) values.emplace_back(preset.name);
  }
  const bool has_auto = std::ranges::find(values, "auto") != values.end();
  if (!values.empty() && DefaultsToAuto(field) && !has_auto) values.emplace_back("auto");
  return values;
}

std::vector<FieldWords> MakeFieldWords() {
  const ValidateContext built;
  std::vector<FieldWords> out;
  std::vector<std::string> refused;  // sections that are not built, with a dot behind them
  for (const FieldAt& at : AllFields(*v1::JobSpec::descriptor(), /*with_sections=*/true)) {
    const v1::FieldRule& rule = RuleOf(*at.field);
    FieldWords words{.path = at.path,
                     .help = rule.help(),
                     .section = IsSection(*at.field),
                     .built = IsBuilt(rule.since(), built) || rule.built_size() > 1,
                     .live = rule.live(),
                     .default_text = rule.required() ? "" : rule.default_()};
    if (!words.built && words.section) refused.push_back(at.path + ".");
    for (const std::string& section : refused) words.built &= !at.path.starts_with(section);
    if (!words.section) words.values = ValuesOf(*at.field, built);
    out.push_back(std::move(words));
  }
  return out;
}

}  // namespace

const std::vector<FieldWords>& AllFieldWords() {
  static const std::vector<FieldWords> words = MakeFieldWords();
  return words;
}

const FieldWords* FindFieldWords(std::string_view path) {
  const auto at = std::ranges::find(AllFieldWords(), path, &FieldWords::path);
  return at == AllFieldWords().end() ? nullptr : &*at;
}

}  // namespace mt::spec
