// `mtctl checkpoint verify`: reads everything and holds it against the digests.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/byte_progress.h"
#include "client/commands/checkpoint.h"
#include "client/commands/checkpoint_place.h"
#include "client/output/format.h"
#include "client/session/session.h"
#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/verified.h"
#include "worker/checkpoint/inspect/verify.h"

namespace mt::client {
namespace {

using nlohmann::ordered_json;

std::string DamageText(const checkpoint::Damage& damage) {
  return base::CleanLine(fmt::format("{}/{}{}: {}", damage.folder, damage.file,
                                     damage.slice.empty() ? "" : ": " + damage.slice, damage.what));
}

std::string ReportText(const checkpoint::VerifyReport& report) {
  std::string text;
  for (const checkpoint::Damage& damage : report.damage) text += DamageText(damage) + "\n";
  for (const std::string& folder : report.removed)
    text += fmt::format("{}: removed while it was read\n", base::CleanLine(folder));
  const auto many = [](int64_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  return text + fmt::format("{}, {}, {}: {}\n", many(report.num_checkpoints, "checkpoint"),
                            many(report.num_slices, "slice"), FormatBytes(report.bytes),
                            report.damage.empty()
                                ? "intact"
                                : many(std::ssize(report.damage), "fault") + ", named above");
}

ordered_json ReportTree(const checkpoint::VerifyReport& report) {
  ordered_json tree = {{"intact", report.damage.empty()}, {"checkpoints", report.num_checkpoints},
                       {"slices", report.num_slices},     {"bytes", report.bytes},
                       {"damage", ordered_json::array()}, {"removed", report.removed}};
  for (const checkpoint::Damage& damage : report.damage) {
    tree["damage"].push_back({{"folder", damage.folder},
                              {"file", damage.file},
                              {"slice", damage.slice},
                              {"what", damage.what}});
  }
  return tree;
}

// Notes in each folder that it was found intact, or not. A folder that cannot be written is read
// all the same.
void Mark(const checkpoint::VerifyReport& report, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (std::ranges::find(report.removed, folder) != report.removed.end()) continue;
    const bool intact = std::ranges::none_of(
        report.damage, [&](const checkpoint::Damage& one) { return one.folder == folder; });
    (void)(intact ? checkpoint::WriteVerified(folder) : checkpoint::RemoveVerified(folder));
  }
}

ExitCode RunVerify(const std::string& path, const GlobalOptions& options) {
  const auto place = ResolvePlace(path, options);
  if (!place.ok()) return Complain(place.status());
  std::vector<checkpoint::CheckpointId> ids;
  if (const std::optional<checkpoint::CheckpointId> id = place->id) {
    ids.push_back(*id);
  } else {
    auto all = checkpoint::ListCheckpoints(place->directory);
    if (!all.ok()) return Complain(all.status());
    ids = *std::move(all);
  }
  BytesLine line("verifying");
  checkpoint::VerifyArgs args{
      .threads = checkpoint::AllCores(),
      .progress = [&](int64_t done, int64_t total) { line.Show(done, total); }};
  for (const checkpoint::CheckpointId& id : ids)
    args.folders.push_back(base::JoinPath(place->directory, checkpoint::FolderName(id)));
  const checkpoint::VerifyReport report = checkpoint::Verify(args);
  line.Clear();
  Mark(report, args.folders);
  const ExitCode printed =
      PrintText(IsTable(options.output) ? ReportText(report)
                                        : RenderTree(ReportTree(report), options.output));
  return report.damage.empty() ? printed : kExitIo;
}

}  // namespace

void AddCheckpointVerify(CLI::App* checkpoint, const CommandContext& context) {
  CLI::App* verify = checkpoint->add_subcommand(
      "verify", "Read checkpoints whole and check every slice against its digest");
  auto path = std::make_shared<std::string>();
  verify->add_option("dir", *path, kDirectoryHelp)->required();
  verify->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunVerify(*path, *options); };
  });
}

}  // namespace mt::client
