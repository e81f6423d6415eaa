// `mtctl init`: writes a job file to begin with.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "client/commands/commands.h"
#include "client/commands/usage.h"
#include "client/output/format.h"
#include "client/output/job_template.h"
#include "common/base/files.h"
#include "common/spec/derived.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {
namespace {

struct InitArgs {
  std::string template_name = "gpt2";
  std::string file = "job.yaml";
  std::string name;
  bool overwrite = false;
};

// What was written, and what comes next.
void SayWhatIsNext(const InitArgs& args, const megatrain::v1::JobSpec& job) {
  std::fprintf(stderr,
               "wrote %s: %s parameters, %lld steps of %lld tokens, %s\n"
               "its data, of any texts: mtctl data prepare --input *.txt --output "
               "DATA_ROOT/text_document --append-eod\n"
               "next: mtctl submit -f %s --follow\n",
               args.file.c_str(),
               FormatRate(static_cast<double>(spec::ParameterCount(job.model()))).c_str(),
               static_cast<long long>(spec::TotalIterations(job)),
               static_cast<long long>(spec::TokensPerStep(job)), spec::LayoutText(job).c_str(),
               args.file.c_str());
}

ExitCode RunInit(const InitArgs& args, const GlobalOptions& options) {
  if (IsStructured(options.output)) {
    return Complain(
        base::InvalidArgument(
            "init writes a template, which has no other format; the job as JSON: mtctl validate "
            "-f {} -o json",
            args.file),
        kExitUsage);
  }
  const std::string text = JobTemplate(args.template_name, args.name, args.file);
  megatrain::v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(text, {}, {}, &job);
  if (!faults.empty()) return Complain(spec::ToStatus(faults));  // a name that no job can have
  if (args.file == "-") return PrintText(text);
  std::error_code error;
  if (!args.overwrite && std::filesystem::exists(args.file, error)) {
    return Complain(
        base::InvalidArgument("{} is there already; --overwrite replaces it, -f FILE "
                              "writes another",
                              args.file));
  }
  const Status written = base::WriteFileAtomic(args.file, text);
  if (!written.ok()) return Complain(written, kExitIo);
  if (options.output == OutputFormat::kName) return PrintText(args.file + "\n");
  SayWhatIsNext(args, job);
  return kExitOk;
}

}  // namespace

void AddInit(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "init",
      "Write a commented job file to begin with: gpt2 or llama, small enough for two cores, "
      "or a preset");
  auto args = std::make_shared<InitArgs>();
  command
      ->add_option("template", args->template_name, "gpt2, llama, or a preset (mtctl get presets)")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](std::string& text) {
            const std::vector<std::string> names = TemplateNames();
            if (std::ranges::find(names, text) != names.end()) return std::string();
            const std::string said = NoSuchValue(text, names);
            return said.find("is none of") == std::string::npos
                       ? said
                       : fmt::format("no template '{}'; gpt2, llama, or one of mtctl get presets",
                                     text);
          },
          ""));
  command->add_option("-f,--file", args->file, "Where to, - for standard output")
      ->capture_default_str();
  command->add_option("--name", args->name, "The job's name (default: the template's)");
  command->add_flag("--overwrite", args->overwrite, "Replace a file that is there");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunInit(*args, *options); };
  });
}

}  // namespace mt::client
