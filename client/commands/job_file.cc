// Reading a job file: text from a file or stdin, namespace by precedence, then LoadJob of
// common/spec.
#include "client/commands/job_file.h"

#include <cstdio>
#include <iostream>
#include <iterator>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/spec/parse.h"
#include "common/spec/print.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {

namespace {

// The fields that the file and --set name. Errors are found later.
megatrain::v1::JobSpec NamedFields(const JobFileArgs& args, const std::string& input,
                                   const std::vector<std::string>& overrides) {
  std::string text = input;
  if (args.path != "-") text = base::ReadFile(args.path).value_or("");
  megatrain::v1::JobSpec named;
  (void)spec::ParseJob(text, overrides, &named);
  return named;
}

}  // namespace

void AddJobFileFlags(CLI::App* command, JobFileArgs* args) {
  command->add_option("-f,--file", args->path, "Job file (YAML or JSON), - for standard input")
      ->required();
  command->add_option("--set", args->overrides, "Override a field: --set parallel.data=2")
      ->take_all();
}

ExitCode ReadJobFile(const JobFileArgs& args, const GlobalOptions& options,
                     megatrain::v1::JobSpec* job, bool* names_directory) {
  if (args.path != "-" && !base::Exists(args.path)) {
    std::fprintf(stderr, "mtctl: there is no file %s (mtctl init writes a job file)\n",
                 args.path.c_str());
    return kExitInvalidInput;
  }
  std::vector<std::string> overrides = args.overrides;
  std::string input;
  if (args.path == "-") {
    input.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  const auto load = [&](megatrain::v1::JobSpec* out) {
    constexpr spec::ValidateContext kContext{.of_service = true};
    return args.path == "-" ? spec::LoadJob(input, overrides, kContext, out)
                            : spec::LoadJobFile(args.path, overrides, kContext, out);
  };
  // Precedence of the namespace: --set, then --namespace, then the file, then the context.
  if (options.namespace_given || !NamedFields(args, input, {}).has_namespace_())
    overrides.insert(overrides.begin(), "namespace=" + options.job_namespace);
  if (names_directory != nullptr)
    *names_directory = NamedFields(args, input, overrides).checkpoint().has_directory();
  const spec::Faults faults = load(job);
  if (faults.empty()) return kExitOk;
  std::fprintf(stderr, "mtctl: %s: %zu fault%s\n%s\n", args.path.c_str(), faults.size(),
               faults.size() == 1 ? "" : "s", spec::FormatFaults(faults).c_str());
  return kExitInvalidInput;
}

void SetDevPolicy(const GlobalOptions& options, megatrain::v1::JobSpec* job) {
  std::string source;
  if (!ResolveEndpoint(options, &source).ok() || source != DevEndpointFile()) return;
  if (!job->resilience().has_on_agent_exit())
    job->mutable_resilience()->set_on_agent_exit(megatrain::v1::Resilience::ON_AGENT_EXIT_STOP);
}

ExitCode PrintJobFile(const megatrain::v1::JobSpec& job, const GlobalOptions& options) {
  if (options.output == OutputFormat::kNone) return kExitOk;
  if (options.output == OutputFormat::kName) return PrintText(job.name() + "\n");
  if (options.output == OutputFormat::kJson) return PrintText(spec::ToJson(job) + "\n");
  if (options.output == OutputFormat::kJsonl)
    return PrintText(RenderTree(nlohmann::ordered_json::parse(spec::ToJson(job)), options.output));
  return PrintText(spec::ToYaml(job));
}

}  // namespace mt::client
