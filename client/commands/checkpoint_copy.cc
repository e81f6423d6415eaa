// `mtctl checkpoint copy`: a complete checkpoint in another directory.
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/byte_progress.h"
#include "client/commands/checkpoint.h"
#include "client/commands/checkpoint_place.h"
#include "client/session/session.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/inspect/copy.h"

namespace mt::client {
namespace {

struct CopyFlags {
  std::string from, to;
};

ExitCode RunCopy(const CopyFlags& flags, const GlobalOptions& options) {
  const auto place = ResolveCheckpoint(flags.from, options);
  if (!place.ok()) return Complain(place.status());
  BytesLine line("copying");
  const auto folder = checkpoint::CopyCheckpoint(
      {.from = place->place,
       .to = flags.to,
       .threads = checkpoint::AllCores(),
       .progress = [&](int64_t done, int64_t total) { line.Show(done, total); }});
  line.Clear();
  if (!folder.ok()) return Complain(folder.status());
  if (options.output == OutputFormat::kName) return PrintText(*folder + "\n");
  if (!IsTable(options.output))
    return PrintText(RenderTree(nlohmann::ordered_json{{"folder", *folder}}, options.output));
  return PrintText(fmt::format("copied to {}, every slice read back\n", *folder));
}

}  // namespace

void AddCheckpointCopy(CLI::App* checkpoint, const CommandContext& context) {
  CLI::App* copy = checkpoint->add_subcommand(
      "copy", "Copy a checkpoint into another directory and check the copy");
  auto flags = std::make_shared<CopyFlags>();
  copy->add_option("checkpoint", flags->from, kCheckpointHelp)->required();
  copy->add_option("dest", flags->to, "The directory that gets it; made if it is missing")
      ->required();
  copy->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunCopy(*flags, *options); };
  });
}

}  // namespace mt::client
