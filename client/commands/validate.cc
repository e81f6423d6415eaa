// `mtctl validate` and `mtctl explain`: what needs no coordinator.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/job_file.h"
#include "client/output/format.h"
#include "common/spec/derived.h"
#include "common/spec/print.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {

void AddValidate(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("validate", "Check a job file and print it with all defaults");
  auto args = std::make_shared<JobFileArgs>();
  command->add_option("-f,--file", args->path, "Job file (YAML or JSON), - for standard input")
      ->required();
  command->add_option("--set", args->overrides, "Override a field: --set parallel.data=2")
      ->take_all();
  command->callback([=] {
    *context.run = [=] {
      megatrain::v1::JobSpec job;
      const ExitCode code = ReadJobFile(*args, *context.options, &job);
      if (code != kExitOk) return code;
      const bool json = context.options->output == OutputFormat::kJson;
      std::fputs((json ? spec::ToJson(job) + "\n" : spec::ToYaml(job)).c_str(), stdout);
      std::fprintf(stderr, "valid: %s parameters, %lld steps of %lld tokens, %lld slot%s\n",
                   FormatRate(static_cast<double>(spec::ParameterCount(job.model()))).c_str(),
                   static_cast<long long>(spec::TotalIterations(job)),
                   static_cast<long long>(spec::TokensPerStep(job)),
                   static_cast<long long>(spec::WorldSize(job)),
                   spec::WorldSize(job) == 1 ? "" : "s");
      return kExitOk;
    };
  });
}

void AddExplain(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("explain", "What a field of the job file means");
  auto path = std::make_shared<std::string>();
  command->add_option("field", *path, "Field path: job.parallel.tensor (none: all sections)");
  command->callback([=] {
    *context.run = [=] {
      const auto text = spec::Explain(*path);
      if (!text.ok()) return Complain(text.status());
      std::fputs(text->c_str(), stdout);
      if (!text->empty() && text->back() != '\n') std::fputc('\n', stdout);
      return kExitOk;
    };
  });
}

}  // namespace mt::client
