// `mtctl validate`: checks a job file without a coordinator and prints it with its defaults.
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/job_file.h"
#include "client/commands/outlook.h"
#include "client/commands/submit_notes.h"
#include "client/output/format.h"
#include "common/base/plain_text.h"
#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {

namespace {

// What the job is, in one line.
std::string Summary(const megatrain::v1::JobSpec& job) {
  const spec::JobKind& kind = spec::KindOf(job);
  if (kind.reads)
    return fmt::format("kind {}, reads {}, 1 slot", kind.name, job.read().checkpoint());
  return fmt::format("{} parameters, {} steps of {} tokens, {} slot{}: {}",
                     FormatRate(static_cast<double>(spec::ParameterCount(job.model()))),
                     spec::TotalIterations(job), spec::TokensPerStep(job), spec::WorldSize(job),
                     spec::WorldSize(job) == 1 ? "" : "s", spec::LayoutText(job));
}

}  // namespace

void AddValidate(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("validate", "Check a job file and print it with all defaults");
  auto args = std::make_shared<JobFileArgs>();
  AddJobFileFlags(command, args.get());
  auto data_root = std::make_shared<std::string>();
  AddDataRootFlag(command, data_root.get());
  command->callback([=] {
    *context.run = [=] {
      megatrain::v1::JobSpec job;
      const ExitCode code = ReadJobFile(*args, *context.options, &job);
      if (code != kExitOk) return code;
      const ExitCode printed = PrintJobFile(job, *context.options);
      if (printed != kExitOk) return printed;
      std::fprintf(stderr, "valid: %s\n", base::CleanLine(Summary(job)).c_str());
      SayOutlook({.job = &job, .passes = PassesHere(job, *data_root, *context.options)});
      SayFieldNotes(job);
      return kExitOk;
    };
  });
}

}  // namespace mt::client
