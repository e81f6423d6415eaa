// `mtctl resume`: continues a job that is held or released, or one that waits for a checkpoint
// which is gone (--allow-older, --fresh).
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

void AddResume(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("resume", "Let a paused job go on");
  struct Args {
    VerbArgs verb;
    bool allow_older = false;
    bool fresh = false;
  };
  auto args = std::make_shared<Args>();
  AddVerbFlags(command, {.waits = false, .destructive = false}, &args->verb);
  auto* older = command->add_flag(
      "--allow-older", args->allow_older,
      "Where its newest checkpoint is gone, go on from an older one: what came after is lost");
  command
      ->add_flag("--fresh", args->fresh,
                 "Begin another run, at step 0, whatever checkpoints there are")
      ->excludes(older);
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      return RunVerb(args->verb, *options, [&](const Api& api, const VerbArgs& verb) {
        auto request = MakeVerbRequest<v1::ResumeRequest>(verb, *options);
        request.set_allow_older(args->allow_older);
        request.set_fresh(args->fresh);
        return api.Resume(request);
      });
    };
  });
}

}  // namespace mt::client
