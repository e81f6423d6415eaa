// `mtctl get presets`: the known model shapes, without a coordinator.
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/listing.h"
#include "client/output/format.h"
#include "common/spec/derived.h"
#include "common/spec/presets.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {
namespace {

// Weights, gradients and two moments, four bytes each.
constexpr int64_t kStateBytesPerParameter = 16;

ExitCode RunGetPresets(const GlobalOptions& options) {
  std::vector<std::vector<std::string>> rows = {
      {"PRESET", "PARAMETERS", "FP32 ADAMW", "LAYERS", "HIDDEN", "HEADS", "SEQ", "VOCAB"}};
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  std::string names;
  for (const spec::Preset& preset : spec::Presets()) {
    v1::Model model;
    spec::ApplyPreset(preset, /*with_vocab=*/true, &model);
    const int64_t parameters = spec::ParameterCount(model);
    const int64_t bytes = kStateBytesPerParameter * parameters;
    const std::string name(preset.name);
    names += name + "\n";
    rows.push_back({name, FormatRate(static_cast<double>(parameters)), FormatBytes(bytes),
                    std::to_string(preset.layers), std::to_string(preset.hidden_size),
                    std::to_string(preset.heads), std::to_string(preset.seq_length),
                    preset.vocab_size == 0 ? "-" : std::to_string(preset.vocab_size)});
    items.push_back({{"name", name},
                     {"parameters", parameters},
                     {"state_bytes", bytes},
                     {"layers", preset.layers},
                     {"hidden_size", preset.hidden_size},
                     {"heads", preset.heads},
                     {"seq_length", preset.seq_length},
                     {"vocab_size", preset.vocab_size}});
  }
  if (options.output == OutputFormat::kName) return PrintText(names);
  if (IsTable(options.output)) return PrintText(Table(rows));
  return PrintText(RenderTree({{"presets", items}}, options.output, "presets"));
}

}  // namespace

void AddGetPresets(CLI::App* get, const CommandContext& context) {
  CLI::App* command = get->add_subcommand(
      "presets", "Known model shapes, and what weights, gradients and optimizer of one take");
  command->alias("preset");
  command->callback([options = context.options, run = context.run] {
    *run = [=] { return RunGetPresets(*options); };
  });
}

}  // namespace mt::client
