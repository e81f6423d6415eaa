// The root command: global flags, subcommands, and the translation of a parsing error into an exit
// code. A verb's parsing stores what to run; it runs after parsing has succeeded.
#include "client/app.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/examples.h"
#include "client/commands/usage.h"
#include "client/session/session.h"
#include "common/rpc/version.h"

namespace mt::client {
namespace {

// A validator that maps names to values of T; `shown` is its form in the help: {a,b,c}.
template <class T>
CLI::Validator Choice(const std::map<std::string, T>& values, const std::string& shown) {
  return {[values](std::string& text) {
            std::vector<std::string> names;
            for (const auto& [name, value] : values) {
              names.push_back(name);
              if (CLI::ignore_case(name) != CLI::ignore_case(text)) continue;
              text = std::to_string(static_cast<int>(value));
              return std::string();
            }
            return NoSuchValue(text, names);
          },
          "{" + shown + "}"};
}

void AddPlaceFlags(CLI::App* app, GlobalOptions* options) {
  app->add_option("--coordinator", options->coordinator,
                  "HOST:PORT of the coordinator (else that of --context, MTCTL_COORDINATOR, "
                  "MTCTL_CONTEXT or the current context, else what `mtctl dev up` started)");
  app->add_option("--context", options->context,
                  "Named coordinator and namespace (mtctl context list)");
  app->add_option("-n,--namespace", options->job_namespace,
                  "Namespace of jobs (else MTCTL_NAMESPACE, else the context's, else default)")
      ->envname("MTCTL_NAMESPACE");
  app->add_option("--connect-timeout", options->connect_timeout_s,
                  "Seconds to wait for the connection to the coordinator")
      ->envname("MTCTL_CONNECT_TIMEOUT")
      ->check(CLI::Range(0.001, 86400.0, "SECONDS"))
      ->capture_default_str();
  app->add_option("--request-timeout", options->request_timeout_s,
                  "Seconds that one request may take, repeats after a broken connection included")
      ->envname("MTCTL_REQUEST_TIMEOUT")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void AddOutputFlags(CLI::App* app, GlobalOptions* options) {
  const std::map<std::string, OutputFormat> formats = {{"table", OutputFormat::kTable},
                                                       {"wide", OutputFormat::kWide},
                                                       {"json", OutputFormat::kJson},
                                                       {"jsonl", OutputFormat::kJsonl},
                                                       {"yaml", OutputFormat::kYaml},
                                                       {"csv", OutputFormat::kCsv},
                                                       {"name", OutputFormat::kName},
                                                       {"none", OutputFormat::kNone},
                                                       {"tensorboard", OutputFormat::kTensorboard}};
  app->add_option("-o,--output", options->output,
                  "How answers are printed (csv, tensorboard: metrics only)")
      ->envname("MTCTL_OUTPUT")
      ->transform(Choice(formats, "table,wide,json,jsonl,yaml,csv,name,none,tensorboard"));
  const std::map<std::string, ColorMode> colors = {
      {"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}};
  app->add_option("--color", options->color, "Colours; auto: on a terminal, without NO_COLOR")
      ->envname("MTCTL_COLOR")
      ->transform(Choice(colors, "auto,always,never"));
  const std::map<std::string, TimeFormat> times = {
      {"relative", TimeFormat::kRelative}, {"iso", TimeFormat::kIso}, {"raw", TimeFormat::kRaw}};
  app->add_option("--time-format", options->time, "Times in tables; raw: Unix microseconds")
      ->envname("MTCTL_TIME_FORMAT")
      ->transform(Choice(times, "relative,iso,raw"));
}

// True where the command line has -o: the parser does not tell it from the environment's value.
// `data prepare --output` is a file, and so is not counted.
bool IsOutputGiven(int argc, const char* const* argv) {
  const std::span words(argv, static_cast<size_t>(argc));
  return std::any_of(words.begin(), words.end(), [](std::string_view word) {
    return word.starts_with("-o") || word.starts_with("--output");
  });
}

}  // namespace

int RunApp(int argc, const char* const* argv) {
  CLI::App app(
      "Trains GPT models on a Megatrain cluster: submits jobs, watches, pauses and stops them, "
      "prepares data.",
      "mtctl");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", "mtctl " + std::string(rpc::Version()));
  GlobalOptions options;
  AddPlaceFlags(&app, &options);
  AddOutputFlags(&app, &options);
  std::function<ExitCode()> run;
  const CommandContext context{.app = &app, .options = &options, .run = &run};
  for (const auto add : kCommands) add(context);
  AddExamples(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // help, or the version
    return app.exit(asked) == 0 ? kExitOk : kExitUsage;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s\n", UsageProblem(app, error).c_str());
    return kExitUsage;
  }
  const bool of_metrics =
      options.output == OutputFormat::kCsv || options.output == OutputFormat::kTensorboard;
  if (of_metrics && !app.got_subcommand("metrics")) {
    return Complain(base::InvalidArgument("-o {} is for `mtctl metrics`; use -o jsonl",
                                          OutputFormatName(options.output)),
                    kExitUsage);
  }
  options.output_given = IsOutputGiven(argc, argv);
  options.namespace_given = app.get_option("--namespace")->count() > 0;
  ResolveNamespace(&options);
  return run();
}

}  // namespace mt::client
