// `mtctl checkpoint`: saves a checkpoint of a running job at its next step.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

void AddCheckpoint(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "checkpoint", "Save a job after the step that is running; training goes on");
  auto args = std::make_shared<VerbArgs>();
  AddVerbFlags(command, {}, args.get());
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      return RunVerb(*args, *options, [&](const Api& api, const VerbArgs& verb) {
        return api.TriggerCheckpoint(MakeVerbRequest<v1::TriggerCheckpointRequest>(verb, *options));
      });
    };
  });
}

}  // namespace mt::client
