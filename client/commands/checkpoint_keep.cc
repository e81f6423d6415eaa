// `mtctl checkpoint pin`, `unpin`, `untag` and `delete`: which checkpoints stay.
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/checkpoint.h"
#include "client/commands/checkpoint_place.h"
#include "client/commands/verb.h"
#include "client/output/format.h"
#include "client/session/session.h"
#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/inspect/deletion.h"
#include "worker/checkpoint/inspect/summary.h"

namespace mt::client {
namespace {

struct KeepArgs {
  std::string path;
  std::string reason;
  std::string run;  // of which all is meant; empty: one checkpoint is
  bool ended = false;
  bool yes = false;
};

// What was done to which folder.
ExitCode Say(const GlobalOptions& options, const std::string& what, const std::string& folder) {
  if (IsTable(options.output)) return PrintText(fmt::format("{} {}\n", what, folder));
  if (options.output == OutputFormat::kName) return PrintText(folder + "\n");
  return PrintText(
      RenderTree(nlohmann::ordered_json{{"done", what}, {"folder", folder}}, options.output));
}

// True if that job, which has ended, holds the directory.
bool IsEndedHolder(const std::string& directory, const std::string& ended_job_uid) {
  if (ended_job_uid.empty()) return false;
  const std::optional<checkpoint::Fence> fence =
      checkpoint::ReadFence(directory).value_or(std::nullopt);
  return fence.has_value() && fence->job_uid == ended_job_uid;
}

ExitCode RunPin(const KeepArgs& args, const GlobalOptions& options) {
  const auto named = ResolveCheckpoint(args.path, options);
  if (!named.ok()) return Complain(named.status());
  const checkpoint::CheckpointPlace& place = named->place;
  const auto manifest = checkpoint::ReadManifest(place.directory, place.id);
  if (!manifest.ok())
    return Complain(base::Annotate(manifest.status(), "only a complete checkpoint is pinned"));
  const Status pinned = checkpoint::WritePin(place.folder, args.reason);
  return pinned.ok() ? Say(options, "pinned", place.folder) : Complain(pinned);
}

ExitCode RunUnpin(const KeepArgs& args, const GlobalOptions& options) {
  const auto named = ResolveCheckpoint(args.path, options);
  if (!named.ok()) return Complain(named.status());
  const checkpoint::CheckpointPlace& place = named->place;
  if (!checkpoint::IsPinned(place.folder))
    return Complain(base::NotFound("{} is not pinned", place.folder));
  const Status unpinned = checkpoint::RemovePin(place.folder);
  return unpinned.ok() ? Say(options, "unpinned", place.folder) : Complain(unpinned);
}

ExitCode RunUntag(const KeepArgs& args, const GlobalOptions& options) {
  const auto named = ResolveCheckpoint(args.path, options);
  if (!named.ok()) return Complain(named.status());
  const checkpoint::CheckpointPlace& place = named->place;
  if (!checkpoint::HasLabel(place.folder))
    return Complain(base::NotFound("{} has no tag", place.folder));
  const Status untagged = checkpoint::RemoveLabel(place.folder);
  return untagged.ok() ? Say(options, "untagged", place.folder) : Complain(untagged);
}

ExitCode SayDeletion(const checkpoint::RunDeletion& done, const std::string& directory,
                     const GlobalOptions& options) {
  if (options.output == OutputFormat::kName) {
    std::string names;
    for (const std::string& name : done.names) names += base::JoinPath(directory, name) + "\n";
    return PrintText(names);
  }
  if (IsTable(options.output)) {
    std::string text = fmt::format("removed {} folder{} ({}) of run {} in {}\n", done.names.size(),
                                   done.names.size() == 1 ? "" : "s", FormatBytes(done.bytes),
                                   done.run, directory);
    for (const auto& [name, why] : done.kept) text += fmt::format("kept {}: it {}\n", name, why);
    return PrintText(text);
  }
  nlohmann::ordered_json tree = {
      {"done", "removed"},     {"run", done.run},     {"directory", directory},
      {"folders", done.names}, {"bytes", done.bytes}, {"kept", nlohmann::ordered_json::array()}};
  for (const auto& [name, why] : done.kept)
    tree["kept"].push_back({{"folder", name}, {"why", why}});
  return PrintText(RenderTree(tree, options.output));
}

ExitCode RunDeleteOfRun(const KeepArgs& args, const GlobalOptions& options) {
  const auto named = ResolveDirectory(args.path, options);
  if (!named.ok()) return Complain(named.status());
  const std::string& directory = named->directory;
  checkpoint::RunDeletionArgs deletion{
      .directory = directory,
      .run = args.run,
      .ended = args.ended || IsEndedHolder(directory, named->ended_job_uid)};
  const auto plan = checkpoint::PlanRunDeletion(deletion);
  if (!plan.ok()) return Complain(plan.status());
  if (plan->names.empty()) return SayDeletion(*plan, directory, options);
  deletion.run = plan->run;
  ExitCode code = kExitOk;
  const std::string question =
      fmt::format("Remove {} folder{} ({}) of run {} in {}, and keep {}? They are gone for good.",
                  plan->names.size(), plan->names.size() == 1 ? "" : "s", FormatBytes(plan->bytes),
                  plan->run, directory, plan->kept.size());
  if (!Confirmed(args.yes, question, &code)) return code;
  const auto done = checkpoint::DeleteRun(deletion);
  return done.ok() ? SayDeletion(*done, directory, options) : Complain(done.status());
}

ExitCode RunDelete(const KeepArgs& args, const GlobalOptions& options) {
  if (!args.run.empty()) return RunDeleteOfRun(args, options);
  const auto named = ResolveCheckpoint(args.path, options);
  if (!named.ok()) return Complain(named.status());
  const checkpoint::CheckpointPlace& place = named->place;
  const checkpoint::DeletionArgs deletion{
      .place = place, .ended = args.ended || IsEndedHolder(place.directory, named->ended_job_uid)};
  const Status may = checkpoint::CheckMayDelete(deletion);
  if (!may.ok()) return Complain(may);
  ExitCode code = kExitOk;
  const std::string question =
      fmt::format("Remove checkpoint {} ({})? It is gone for good.", place.folder,
                  FormatBytes(checkpoint::FolderBytes(place.folder).value_or(0)));
  if (!Confirmed(args.yes, question, &code)) return code;
  const Status removed = checkpoint::DeleteCheckpoint(deletion);
  return removed.ok() ? Say(options, "removed", place.folder) : Complain(removed);
}

CLI::App* AddKeeping(CLI::App* checkpoint, const CommandContext& context,
                     const std::shared_ptr<KeepArgs>& args, const char* name, const char* help,
                     ExitCode (*run_verb)(const KeepArgs&, const GlobalOptions&)) {
  CLI::App* verb = checkpoint->add_subcommand(name, help);
  verb->add_option("checkpoint", args->path, kCheckpointHelp)->required();
  verb->callback([=, options = context.options, run = context.run] {
    *run = [=] { return run_verb(*args, *options); };
  });
  return verb;
}

}  // namespace

void AddCheckpointKeeping(CLI::App* checkpoint, const CommandContext& context) {
  const auto pin = std::make_shared<KeepArgs>();
  AddKeeping(checkpoint, context, pin, "pin", "Never remove a checkpoint by itself", RunPin)
      ->add_option("--reason", pin->reason, "Shown with the checkpoint");
  AddKeeping(checkpoint, context, std::make_shared<KeepArgs>(), "unpin",
             "Let a pinned checkpoint go as the others do", RunUnpin);
  AddKeeping(checkpoint, context, std::make_shared<KeepArgs>(), "untag",
             "Take its tag and meta from a checkpoint, and let it go as the others do", RunUntag);
  const auto removal = std::make_shared<KeepArgs>();
  CLI::App* command =
      AddKeeping(checkpoint, context, removal, "delete",
                 "Remove a checkpoint of a job that has ended, or another run's", RunDelete);
  command->add_option(
      "--run", removal->run,
      "Remove what this run (its id, or how that begins) has in a directory, DIR or "
      "JOB, but its two newest and what is pinned or tagged");
  command->add_flag("--ended", removal->ended,
                    "Your word that the job which holds the directory trains no more");
  AddYesFlag(command, &removal->yes);
}

}  // namespace mt::client
