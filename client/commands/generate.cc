// `mtctl generate`: has text written from a checkpoint, by a job of the cluster, or by mt-rank on
// this machine. The job that saved it is not touched, and needs not run.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/reader_run.h"
#include "megatrain/v1/job.pb.h"
#include "worker/decode/generate_flags.h"

namespace mt::client {
namespace {

struct GenerateVerb {
  ReaderVerb reader;
  decode::GenerateFlags flags;
};

ExitCode RunGenerate(const GenerateVerb& verb, const GlobalOptions& options) {
  decode::GenerateFlags flags = verb.flags;
  flags.json = options.output == OutputFormat::kJson;
  if (!flags.json && !IsTable(options.output))
    return Complain(base::InvalidArgument("generate writes text, or JSON with -o json"),
                    kExitUsage);
  return RunReaderVerb(
      verb.reader,
      {.flag = "--generate",
       .arguments = decode::ToArguments(flags),
       .make_job = [&flags](const ReaderSource& source) { return GenerateSpec(flags, source); }},
      options);
}

}  // namespace

void AddGenerate(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "generate",
      "Text from a job's checkpoint, while it trains or afterwards, by a job on one slot");
  auto verb = std::make_shared<GenerateVerb>();
  decode::AddGenerateFlags(command, &verb->flags);
  AddReaderVerb(command, &verb->reader);
  command->callback([=, options = context.options, run = context.run] {
    NoteGiven(*command, &verb->reader);
    *run = [=] { return RunGenerate(*verb, *options); };
  });
}

}  // namespace mt::client
