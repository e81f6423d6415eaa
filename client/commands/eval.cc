// `mtctl eval`: finds the checkpoint and has mt-rank, which has the engine, score it on the tasks
// of a file. The job is not touched, and needs not run.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/rank_program.h"
#include "worker/decode/scores/eval_flags.h"

namespace mt::client {
namespace {

struct EvalVerb {
  ReaderTarget target;
  decode::EvalFlags flags;
};

ExitCode RunEval(const EvalVerb& verb, const GlobalOptions& options) {
  decode::EvalFlags flags = verb.flags;
  flags.json = options.output == OutputFormat::kJson;
  if (!flags.json && !IsTable(options.output))
    return Complain(base::InvalidArgument("eval writes text, or JSON with -o json"), kExitUsage);
  return RunReader(verb.target, "--eval", decode::ToArguments(flags), options);
}

}  // namespace

void AddEval(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "eval",
      "Scores of a job's checkpoint: perplexity, last words, multiple choice; takes no slot");
  auto verb = std::make_shared<EvalVerb>();
  AddReaderTarget(command, &verb->target);
  decode::AddEvalFlags(command, &verb->flags);
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunEval(*verb, *options); };
  });
}

}  // namespace mt::client
