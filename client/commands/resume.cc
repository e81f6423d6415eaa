// `mtctl resume`: continues a job that is held or released.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/verb.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

void AddResume(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("resume", "Let a paused job go on");
  auto args = std::make_shared<VerbArgs>();
  AddVerbFlags(command, {.waits = false, .destructive = false}, args.get());
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      return RunVerb(*args, *options, [&](const Api& api, const VerbArgs& verb) {
        return api.Resume(MakeVerbRequest<v1::ResumeRequest>(verb, *options));
      });
    };
  });
}

}  // namespace mt::client
