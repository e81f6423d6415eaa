// `mtctl pause`: --hold keeps ranks and slots, --release saves and frees the slots, with --discard
// even if the save fails.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

void AddPause(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("pause", "Let a job stand still");
  struct Args {
    VerbArgs verb;
    bool hold = false;
    bool release = false;
    bool discard = false;
  };
  auto args = std::make_shared<Args>();
  AddVerbFlags(command, {}, &args->verb);
  auto* hold =
      command->add_flag("--hold", args->hold, "Its ranks wait with all their memory (the default)");
  auto* release =
      command
          ->add_flag("--release", args->release,
                     "Save a checkpoint, then free its slots for others; if the save fails, its "
                     "ranks wait and nothing is lost")
          ->excludes(hold);
  command
      ->add_flag("--discard", args->discard,
                 "With --release: free the slots even if the save fails, and give up what was "
                 "trained since the last one")
      ->needs(release);
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      return RunVerb(args->verb, *options, [&](const Api& api, const VerbArgs& verb) {
        auto request = MakeVerbRequest<v1::PauseRequest>(verb, *options);
        request.set_mode(args->release ? v1::PauseRequest::RELEASE : v1::PauseRequest::HOLD);
        request.set_discard(args->discard);
        return api.Pause(request);
      });
    };
  });
}

}  // namespace mt::client
