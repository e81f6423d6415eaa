// `mtctl checkpoint`: saves a checkpoint of a running job at its next step; its other subcommands
// look after checkpoints on disk.
#include "client/commands/checkpoint.h"

#include <memory>
#include <set>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct SaveArgs {
  VerbArgs verb;
  std::string tag;
  std::vector<std::string> meta;  // "key=value" each, no key twice
};

// What is wrong with the --meta of a command line; empty: nothing.
std::string MetaFault(const std::vector<std::string>& meta) {
  std::set<std::string> keys;
  for (const std::string& entry : meta) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) return "is KEY=VALUE, not " + entry;
    if (!keys.insert(entry.substr(0, equals)).second)
      return "has the key " + entry.substr(0, equals) + " twice";
  }
  return "";
}

// `args` must live as long as the app.
void AddSaveFlags(CLI::App* command, SaveArgs* args) {
  AddVerbFlags(command, {}, &args->verb);
  command->add_option("--tag", args->tag,
                      "A name for the checkpoint, by which it can be loaded; it is never pruned. "
                      "An earlier one of this name loses it");
  command->add_option("--meta", args->meta, "Stored with the checkpoint: --meta loss=3.2")
      ->take_all()
      ->allow_extra_args(false);
}

void CheckSaveFlags(const CLI::App& command, const SaveArgs& args) {
  const std::string fault = MetaFault(args.meta);
  if (!fault.empty()) throw CLI::ValidationError("--meta", fault);
  if (command.count("--tag") > 0 && args.tag.empty())
    throw CLI::ValidationError("--tag", "is empty");
}

ExitCode RunSave(const SaveArgs& args, const GlobalOptions& options) {
  return RunVerb(args.verb, options, [&](const Api& api, const VerbArgs& verb) {
    auto request = MakeVerbRequest<v1::TriggerCheckpointRequest>(verb, options);
    if (!args.tag.empty()) request.mutable_label()->set_tag(args.tag);
    for (const std::string& entry : args.meta) {
      const size_t equals = entry.find('=');
      (*request.mutable_label()->mutable_meta())[entry.substr(0, equals)] =
          entry.substr(equals + 1);
    }
    return api.TriggerCheckpoint(request);
  });
}

}  // namespace

void AddCheckpoint(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "checkpoint", "Save a job (checkpoint JOB, or save JOB); look after checkpoints on disk");
  // Without a subcommand it is `save`.
  auto args = std::make_shared<SaveArgs>();
  AddSaveFlags(command, args.get());
  command->get_option("job")->required(false);
  command->callback([=, options = context.options, run = context.run] {
    const auto subcommands = command->get_subcommands();
    if (!subcommands.empty()) {
      // What a subcommand does not take falls through to its parent.
      std::vector<std::string> extras;
      if (!args->verb.job.empty()) extras.push_back(args->verb.job);
      if (command->count("--tag") > 0) extras.emplace_back("--tag");
      if (command->count("--meta") > 0) extras.emplace_back("--meta");
      if (!extras.empty()) throw CLI::ExtrasError(subcommands[0]->get_name(), extras);
      return;
    }
    if (args->verb.job.empty()) throw CLI::RequiredError("job, or a subcommand,");
    CheckSaveFlags(*command, *args);
    *run = [=] { return RunSave(*args, *options); };
  });

  CLI::App* save = command->add_subcommand(
      "save", "Save a job after the step that is running; training goes on");
  auto save_args = std::make_shared<SaveArgs>();
  AddSaveFlags(save, save_args.get());
  save->callback([=, options = context.options, run = context.run] {
    CheckSaveFlags(*save, *save_args);
    *run = [=] { return RunSave(*save_args, *options); };
  });
  AddCheckpointList(command, context);
  AddCheckpointInspect(command, context);
  AddCheckpointVerify(command, context);
  AddCheckpointDiff(command, context);
  AddCheckpointKeeping(command, context);
  AddCheckpointCopy(command, context);
  AddCheckpointExport(command, context);
  AddCheckpointImport(command, context);
}

}  // namespace mt::client
