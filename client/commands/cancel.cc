// `mtctl cancel`: stops a job in an orderly way, with --checkpoint after a save.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

void AddCancel(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("cancel", "End a job");
  struct Args {
    VerbArgs verb;
    bool checkpoint = false;
  };
  auto args = std::make_shared<Args>();
  AddVerbFlags(command, {.waits = true, .destructive = true}, &args->verb);
  command->add_flag("--checkpoint", args->checkpoint, "Save a checkpoint first");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      ExitCode code = kExitOk;
      const std::string question = fmt::format("Cancel job {}{}?", args->verb.job,
                                               args->checkpoint ? " after a checkpoint" : "");
      if (!Confirmed(args->verb.yes, question, &code)) return code;
      return RunVerb(args->verb, *options, [&](const Api& api, const VerbArgs& verb) {
        auto request = MakeVerbRequest<v1::CancelRequest>(verb, *options);
        request.set_checkpoint_first(args->checkpoint);
        return api.Cancel(request);
      });
    };
  });
}

}  // namespace mt::client
