// `mtctl generate`: has text written from a checkpoint, by a job of the cluster, or by mt-rank on
// this machine: the job that saved it is not touched, and needs not run. With --in-job it writes
// the text itself.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/in_job.h"
#include "client/commands/reader_run.h"
#include "megatrain/v1/job.pb.h"
#include "worker/decode/generate_flags.h"

namespace mt::client {
namespace {

struct GenerateVerb {
  ReaderVerb reader;
  decode::GenerateFlags flags;
  bool in_job = false;
};

ExitCode RunGenerate(const GenerateVerb& verb, const GlobalOptions& options) {
  decode::GenerateFlags flags = verb.flags;
  flags.json = options.output == OutputFormat::kJson;
  if (!flags.json && !IsTable(options.output))
    return Complain(base::InvalidArgument("generate writes text, or JSON with -o json"),
                    kExitUsage);
  if (verb.in_job) {
    if (!verb.reader.target.job.empty())
      return GenerateInJob(verb.reader.target.job, flags, options);
    return Complain(base::InvalidArgument("--in-job is of a job that trains: name it"), kExitUsage);
  }
  return RunReaderVerb(
      verb.reader,
      {.flag = "--generate",
       .arguments = decode::ToArguments(flags),
       .make_job = [&flags](const ReaderSource& source) { return GenerateSpec(flags, source); },
       .has_in_job = true},
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
  auto* const in_job = command->add_flag(
      "--in-job", verb->in_job,
      "The ranks that train the job write the text between two steps, where it has planned memory "
      "for that (training.eval.decode_tokens): no slot, no checkpoint");
  // What is read, where, and by whom is the job's.
  for (const char* const other :
       {"--dir", "--step", "--tag", "--device", "--precision", "--threads", "--tokenizer",
        "--tokenizer-file", "--vocab", "--merges", "--logprobs", "--local", "--wait", "--detach",
        "--data-root"})
    in_job->excludes(command->get_option(other));
  command->callback([=, options = context.options, run = context.run] {
    NoteGiven(*command, &verb->reader);
    *run = [=] { return RunGenerate(*verb, *options); };
  });
}

}  // namespace mt::client
