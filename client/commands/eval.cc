// `mtctl eval`: has a checkpoint scored on the tasks of a file, by a job of the cluster, or by
// mt-rank on this machine. The job that saved it is not touched, and needs not run.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/reader_run.h"
#include "megatrain/v1/job.pb.h"
#include "worker/decode/scores/eval_flags.h"

namespace mt::client {
namespace {

struct EvalVerb {
  ReaderVerb reader;
  decode::EvalFlags flags;
};

ExitCode RunEval(const EvalVerb& verb, const GlobalOptions& options) {
  decode::EvalFlags flags = verb.flags;
  flags.json = options.output == OutputFormat::kJson;
  if (!flags.json && !IsTable(options.output))
    return Complain(base::InvalidArgument("eval writes text, or JSON with -o json"), kExitUsage);
  return RunReaderVerb(
      verb.reader,
      {.flag = "--eval",
       .arguments = decode::ToArguments(flags),
       .make_job = [&flags](const ReaderSource& source) { return EvalSpec(flags, source); }},
      options);
}

}  // namespace

void AddEval(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("eval",
                                                  "Scores of a job's checkpoint: perplexity, last "
                                                  "words, multiple choice; by a job on one slot");
  auto verb = std::make_shared<EvalVerb>();
  decode::AddEvalFlags(command, &verb->flags);
  AddReaderVerb(command, &verb->reader);
  command->callback([=, options = context.options, run = context.run] {
    NoteGiven(*command, &verb->reader);
    *run = [=] { return RunEval(*verb, *options); };
  });
}

}  // namespace mt::client
