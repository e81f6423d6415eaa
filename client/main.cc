// mtctl: the user's side of Megatrain. Data goes to stdout, messages to stderr; exit codes are in
// README.md.
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/session.h"
#include "common/base/log.h"
#include "common/rpc/version.h"

namespace mt::client {
namespace {

int Main(int argc, char** argv) {
  log::Init({.binary = "mtctl", .level = log::Level::kWarn, .file = {}});
  CLI::App app(
      "Trains GPT models on a Megatrain cluster: submits jobs, watches and stops them, prepares "
      "data.",
      "mtctl");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", "mtctl " + std::string(rpc::Version()));

  GlobalOptions options;
  app.add_option("--coordinator", options.coordinator,
                 "HOST:PORT of the coordinator (else MTCTL_COORDINATOR, else the one that `mtctl "
                 "dev up` started)");
  app.add_option("-n,--namespace", options.job_namespace, "Namespace of jobs")
      ->capture_default_str();
  const std::map<std::string, OutputFormat> formats = {{"table", OutputFormat::kTable},
                                                       {"json", OutputFormat::kJson}};
  app.add_option("-o,--output", options.output, "table or json")
      ->transform(CLI::CheckedTransformer(formats).description("{table,json}"));
  app.add_option("--request-timeout", options.request_timeout_s,
                 "Seconds a single request may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();

  std::function<ExitCode()> run;
  const CommandContext context{.app = &app, .options = &options, .run = &run};
  for (const auto add : {AddSubmit, AddValidate, AddExplain, AddGet, AddDescribe, AddLogs,
                         AddCancel, AddWait, AddData, AddDev}) {
    add(context);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return run();
}

}  // namespace
}  // namespace mt::client

// NOLINTNEXTLINE(bugprone-exception-escape): only out of memory throws here, and ends the program.
int main(int argc, char** argv) { return mt::client::Main(argc, argv); }
