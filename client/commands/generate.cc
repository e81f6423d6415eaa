// `mtctl generate`: finds the checkpoint and has mt-rank, which has the engine, write text from it.
// The job is not touched, and needs not run.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/rank_program.h"
#include "worker/decode/generate_flags.h"

namespace mt::client {
namespace {

struct GenerateVerb {
  ReaderTarget target;
  decode::GenerateFlags flags;
};

ExitCode RunGenerate(const GenerateVerb& verb, const GlobalOptions& options) {
  decode::GenerateFlags flags = verb.flags;
  flags.json = options.output == OutputFormat::kJson;
  if (!flags.json && !IsTable(options.output))
    return Complain(base::InvalidArgument("generate writes text, or JSON with -o json"),
                    kExitUsage);
  return RunReader(verb.target, "--generate", decode::ToArguments(flags), options);
}

}  // namespace

void AddGenerate(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "generate", "Text from a job's checkpoint, while it trains or afterwards; takes no slot");
  auto verb = std::make_shared<GenerateVerb>();
  AddReaderTarget(command, &verb->target);
  decode::AddGenerateFlags(command, &verb->flags);
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunGenerate(*verb, *options); };
  });
}

}  // namespace mt::client
