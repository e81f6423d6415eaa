// A template is a table of values by path; which settings are shown beside them, and where, is one
// list of paths in the order of the file.
#include "client/output/job_template.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "client/output/format.h"
#include "common/base/check.h"
#include "common/spec/derived.h"
#include "common/spec/field_words.h"
#include "common/spec/presets.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {
namespace {

constexpr size_t kWidth = 100;      // of the file
constexpr size_t kHelpColumn = 34;  // of the help beside a setting

// What is shown where the template does not choose it: with its default, or with this example.
struct Shown {
  std::string_view path;
  std::string_view example;
};
constexpr Shown kShown[] = {{"name", ""},
                            {"labels", "{team: nlp}"},
                            {"priority", ""},
                            {"model", ""},
                            {"model.preset", ""},
                            {"model.layers", ""},
                            {"model.hidden_size", ""},
                            {"model.heads", ""},
                            {"model.kv_heads", ""},
                            {"model.ffn_size", ""},
                            {"model.seq_length", ""},
                            {"model.position", ""},
                            {"model.norm", ""},
                            {"model.activation", ""},
                            {"model.bias", ""},
                            {"model.tie_embeddings", ""},
                            {"model.hidden_dropout", ""},
                            {"model.attention_dropout", ""},
                            {"data", ""},
                            {"data.path", ""},
                            {"data.split", ""},
                            {"data.split_by", ""},
                            {"data.tokenizer", ""},
                            {"data.tokenizer.type", ""},
                            {"parallel", ""},
                            {"parallel.tensor", ""},
                            {"parallel.pipeline", ""},
                            {"parallel.data", ""},
                            {"training", ""},
                            {"training.train_iters", ""},
                            {"training.micro_batch_size", ""},
                            {"training.global_batch_size", ""},
                            {"training.precision", ""},
                            {"training.seed", ""},
                            {"training.recompute", ""},
                            {"training.recompute.mode", ""},
                            {"training.eval", ""},
                            {"training.eval.every_iters", ""},
                            {"training.eval.iters", ""},
                            {"optimizer", ""},
                            {"optimizer.type", ""},
                            {"optimizer.lr", ""},
                            {"optimizer.min_lr", ""},
                            {"optimizer.warmup", ""},
                            {"optimizer.decay", ""},
                            {"optimizer.weight_decay", ""},
                            {"optimizer.beta2", ""},
                            {"optimizer.clip_grad", ""},
                            {"checkpoint", ""},
                            {"checkpoint.directory", ""},
                            {"checkpoint.every_iters", ""},
                            {"checkpoint.keep_last", ""},
                            {"checkpoint.keep_best", ""},
                            {"checkpoint.async_save", ""},
                            {"checkpoint.fresh", ""},
                            {"placement", ""},
                            {"placement.device", ""},
                            {"placement.exclusive", ""},
                            {"resilience", ""},
                            {"resilience.deadline", "12h"}};

// What a template chooses, by path.
struct Template {
  std::string title;
  std::vector<std::pair<std::string_view, std::string>> values;

  const std::string* Find(std::string_view path) const {
    const auto at = std::ranges::find(values, path, [](const auto& one) { return one.first; });
    return at == values.end() ? nullptr : &at->second;
  }
};

// A million parameters: some five steps a second on two cores.
Template SmallTemplate(bool llama) {
  Template out{.title = llama ? "a small model of the Llama family on two CPU slots"
                              : "a small model of the GPT-2 family on two CPU slots",
               .values = {{"name", llama ? "llama-demo" : "gpt2-demo"},
                          {"model.layers", "4"},
                          {"model.hidden_size", "128"},
                          {"model.heads", "4"},
                          {"model.seq_length", "128"},
                          {"parallel.data", "2"},
                          {"training.train_iters", "1000"},
                          {"training.micro_batch_size", "4"},
                          {"training.global_batch_size", "16"},
                          {"optimizer.lr", "3.0e-3"},
                          {"optimizer.min_lr", "3.0e-4"},
                          {"optimizer.warmup", "50"},
                          {"placement.device", "cpu"}}};
  if (llama) {
    out.values.insert(out.values.end(), {{"model.kv_heads", "2"},
                                         {"model.position", "rope"},
                                         {"model.norm", "rmsnorm"},
                                         {"model.activation", "swiglu"},
                                         {"model.bias", "false"},
                                         {"model.tie_embeddings", "false"}});
  }
  return out;
}

// Learning rates by size are those of Brown et al. 2020, table 2.1.
std::string_view LearningRate(int64_t parameters, std::string_view* tenth) {
  struct Row {
    int64_t below;
    std::string_view lr, min_lr;
  };
  constexpr Row kRows[] = {
      {200'000'000, "6.0e-4", "6.0e-5"},   {600'000'000, "3.0e-4", "3.0e-5"},
      {1'000'000'000, "2.5e-4", "2.5e-5"}, {2'000'000'000, "2.0e-4", "2.0e-5"},
      {5'000'000'000, "1.6e-4", "1.6e-5"}, {10'000'000'000, "1.2e-4", "1.2e-5"},
      {20'000'000'000, "1.0e-4", "1.0e-5"}};
  const auto* at =
      std::ranges::find_if(kRows, [&](const Row& row) { return parameters < row.below; });
  *tenth = at == std::end(kRows) ? "6.0e-6" : at->min_lr;
  return at == std::end(kRows) ? "6.0e-5" : at->lr;
}

Template PresetTemplate(const spec::Preset& preset) {
  megatrain::v1::Model model;
  spec::ApplyPreset(preset, /*with_vocab=*/true, &model);
  const int64_t parameters = spec::ParameterCount(model);
  std::string_view min_lr;
  const std::string_view lr = LearningRate(parameters, &min_lr);
  std::string name(preset.name);
  std::ranges::replace(name, '.', '-');  // as names of jobs are written
  return {.title = fmt::format("{} on a GPU", preset.name),
          .values = {{"name", name},
                     {"model.preset", std::string(preset.name)},
                     {"training.train_iters", "1000"},
                     {"training.micro_batch_size", parameters < 1'000'000'000 ? "8" : "1"},
                     {"training.global_batch_size", "64"},
                     {"optimizer.lr", std::string(lr)},
                     {"optimizer.min_lr", std::string(min_lr)},
                     {"optimizer.warmup", "100"},
                     {"optimizer.beta2", "0.95"},
                     {"placement.device", "gpu"}}};
}

// What all templates choose alike.
void AddCommon(Template* out) {
  out->values.insert(out->values.end(), {{"data.path", "[text_document]"},
                                         {"data.split", "\"969,30,1\""},
                                         {"data.tokenizer.type", "byte"},
                                         {"training.eval.every_iters", "100"},
                                         {"optimizer.decay", "cosine"},
                                         {"optimizer.weight_decay", "0.1"},
                                         {"checkpoint.every_iters", "200"},
                                         {"checkpoint.keep_last", "3"}});
}

// A line of the file, its help beside it, or above where there is no room.
std::string Line(const std::string& setting, const std::string& help, const std::string& indent) {
  if (setting.size() + 2 <= kHelpColumn && kHelpColumn + 2 + help.size() <= kWidth)
    return fmt::format("{:<{}}# {}\n", setting, kHelpColumn, help);
  std::string out;
  std::string line = indent + "#";
  std::istringstream words(help);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = indent + "#";
    }
    line.append(" ").append(word);
  }
  return fmt::format("{}{}\n{}\n", out, line, setting);
}

// A preset chooses the shape itself; beside it only dropout is the job's.
bool HiddenByPreset(std::string_view path, const Template& chosen) {
  return chosen.Find("model.preset") != nullptr && path.starts_with("model.") &&
         path != "model.preset" && !path.ends_with("dropout");
}

std::string Setting(const Shown& shown, const Template& chosen) {
  if (HiddenByPreset(shown.path, chosen)) return "";
  const spec::FieldWords* field = spec::FindFieldWords(shown.path);
  CHECK(field != nullptr && field->built) << shown.path << " is no field that is built";
  const size_t dots = static_cast<size_t>(std::ranges::count(shown.path, '.'));
  const std::string indent(2 * dots, ' ');
  const std::string key(shown.path.substr(shown.path.rfind('.') + 1));  // npos + 1 is 0
  if (field->section) {
    return fmt::format("{}{}", dots == 0 ? "\n" : "",
                       Line(fmt::format("{}{}:", indent, key), field->help, indent));
  }
  std::string help = field->help;
  if (field->values.size() > 1 && field->values.size() <= 8 && field->values[0] != "true")
    help += fmt::format(" One of {}.", fmt::join(field->values, ", "));
  if (const std::string* value = chosen.Find(shown.path))
    return Line(fmt::format("{}{}: {}", indent, key, *value), help, indent);
  const std::string_view value = shown.example.empty() ? field->default_text : shown.example;
  if (value.empty()) return "";  // neither a default nor an example: not for this template
  return Line(fmt::format("{}#{}: {}", indent, key, value), help, indent);
}

}  // namespace

std::vector<std::string> TemplateNames() {
  std::vector<std::string> names = {"gpt2", "llama"};
  for (const spec::Preset& preset : spec::Presets()) names.emplace_back(preset.name);
  return names;
}

std::string JobTemplate(std::string_view template_name, std::string_view name,
                        std::string_view file) {
  const bool small = template_name == "gpt2" || template_name == "llama";
  const spec::Preset* preset = spec::FindPreset(template_name);
  if (!small && preset == nullptr) return "";
  Template chosen = small ? SmallTemplate(template_name == "llama") : PresetTemplate(*preset);
  AddCommon(&chosen);
  if (!name.empty()) chosen.values.front().second = name;
  std::string out = fmt::format(
      "# A job: {}. Written by `mtctl init {}`.\n"
      "# A setting behind '#' shows its default or an example: take the '#' away to change it.\n"
      "# All settings, and one in full: mtctl explain, mtctl explain model, mtctl explain "
      "job.optimizer.lr\n"
      "# What is wrong with this file, all at once: mtctl validate -f {}\n\n",
      chosen.title, template_name, file == "-" ? "job.yaml" : file);
  for (const Shown& shown : kShown) out += Setting(shown, chosen);
  return out;
}

}  // namespace mt::client
