// `mtctl checkpoint`: saves a checkpoint of a running job at its next step; its other subcommands
// look after checkpoints on disk.
#include "client/commands/checkpoint.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

ExitCode RunSave(const VerbArgs& args, const GlobalOptions& options) {
  return RunVerb(args, options, [&](const Api& api, const VerbArgs& verb) {
    return api.TriggerCheckpoint(MakeVerbRequest<v1::TriggerCheckpointRequest>(verb, options));
  });
}

}  // namespace

void AddCheckpoint(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "checkpoint", "Save a job (checkpoint JOB, or save JOB); look after checkpoints on disk");
  // Without a subcommand it is `save`.
  auto args = std::make_shared<VerbArgs>();
  AddVerbFlags(command, {}, args.get());
  command->get_option("job")->required(false);
  command->callback([=, options = context.options, run = context.run] {
    const auto subcommands = command->get_subcommands();
    if (!subcommands.empty()) {
      // What a subcommand does not take falls through to its parent.
      if (!args->job.empty()) throw CLI::ExtrasError(subcommands[0]->get_name(), {args->job});
      return;
    }
    if (args->job.empty()) throw CLI::RequiredError("job, or a subcommand,");
    *run = [=] { return RunSave(*args, *options); };
  });

  CLI::App* save = command->add_subcommand(
      "save", "Save a job after the step that is running; training goes on");
  auto save_args = std::make_shared<VerbArgs>();
  AddVerbFlags(save, {}, save_args.get());
  save->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunSave(*save_args, *options); };
  });
  AddCheckpointList(command, context);
  AddCheckpointInspect(command, context);
  AddCheckpointVerify(command, context);
  AddCheckpointDiff(command, context);
  AddCheckpointKeeping(command, context);
  AddCheckpointCopy(command, context);
}

}  // namespace mt::client
