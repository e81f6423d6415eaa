// `mtctl delete`: removes an ended job from the coordinator's store.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

void AddDelete(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "delete", "Forget an ended job and its history; its checkpoints stay");
  auto args = std::make_shared<VerbArgs>();
  AddVerbFlags(command, {.waits = true, .destructive = true}, args.get());
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      ExitCode code = kExitOk;
      const std::string question = fmt::format(
          "Delete job {} with its history and events? Its checkpoints stay.", args->job);
      if (!Confirmed(args->yes, question, &code)) return code;
      return RunVerb(*args, *options, [&](const Api& api, const VerbArgs& verb) {
        return api.Delete(MakeVerbRequest<v1::DeleteJobRequest>(verb, *options));
      });
    };
  });
}

}  // namespace mt::client
