// `mtctl kill`: ends a job's processes at once, without a checkpoint.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

void AddKill(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("kill", "End a job now, without a checkpoint");
  auto args = std::make_shared<VerbArgs>();
  AddVerbFlags(command, {.waits = true, .destructive = true}, args.get());
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      ExitCode code = kExitOk;
      const std::string question =
          fmt::format("Kill job {}? What it trained since its last checkpoint is lost.", args->job);
      if (!Confirmed(args->yes, question, &code)) return code;
      return RunVerb(*args, *options, [&](const Api& api, const VerbArgs& verb) {
        return api.Kill(MakeVerbRequest<v1::KillRequest>(verb, *options));
      });
    };
  });
}

}  // namespace mt::client
