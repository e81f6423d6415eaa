// `mtctl pause`: --hold keeps ranks and slots, --release saves and frees the slots.
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
  };
  auto args = std::make_shared<Args>();
  AddVerbFlags(command, {}, &args->verb);
  auto* hold =
      command->add_flag("--hold", args->hold, "Its ranks wait with all their memory (the default)");
  command->add_flag("--release", args->release, "Save a checkpoint, then free its slots for others")
      ->excludes(hold);
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      return RunVerb(args->verb, *options, [&](const Api& api, const VerbArgs& verb) {
        auto request = MakeVerbRequest<v1::PauseRequest>(verb, *options);
        request.set_mode(args->release ? v1::PauseRequest::RELEASE : v1::PauseRequest::HOLD);
        return api.Pause(request);
      });
    };
  });
}

}  // namespace mt::client
