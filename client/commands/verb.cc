// The course of a verb: confirm, connect, send with a request id, wait for the operation, print it.
#include "client/commands/verb.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "client/output/operation_text.h"
#include "client/session/operations.h"
#include "common/base/ids.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

void FillJobRef(const GlobalOptions& options, const std::string& job, v1::JobRef* ref) {
  *ref = MakeJobRequest(options, job).job();
}

void AddYesFlag(CLI::App* command, bool* yes) {
  command->add_flag("-y,--yes", *yes, "Do not ask (needed where there is no terminal)");
}

void AddVerbFlags(CLI::App* command, const VerbFlags& flags, VerbArgs* args) {
  command->add_option("job", args->job, "Name (the newest job of that name) or uid")->required();
  command->add_option("--reason", args->reason, "Kept with the operation and its events");
  args->wait = flags.waits;
  command->add_flag("--wait,!--no-wait", args->wait,
                    flags.waits ? "Wait until it is done (the default)" : "Wait until it is done");
  command->add_option("--timeout", args->timeout_s, "Seconds to wait (0: as long as it takes)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--request-id", args->request_id,
                      "Repeat of an earlier request: gives the same operation");
  if (flags.destructive) AddYesFlag(command, &args->yes);
}

bool Confirmed(bool yes, std::string_view question, ExitCode* code) {
  if (yes) return true;
  if (::isatty(STDIN_FILENO) != 1) {
    std::fprintf(stderr, "mtctl: %.*s Pass --yes to do it without a terminal\n",
                 static_cast<int>(question.size()), question.data());
    *code = kExitUsage;
    return false;
  }
  std::fprintf(stderr, "%.*s [y/N] ", static_cast<int>(question.size()), question.data());
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return true;
  std::fprintf(stderr, "mtctl: nothing was done\n");
  *code = kExitError;
  return false;
}

ExitCode RunVerb(VerbArgs args, const GlobalOptions& options,
                 const std::function<StatusOr<v1::Operation>(const Api&, const VerbArgs&)>& send) {
  if (args.request_id.empty()) args.request_id = base::NewUid();
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  auto operation = send(**api, args);
  if (!operation.ok()) {
    const ExitCode failed = Complain(operation.status());
    // The request may have been accepted before the connection broke.
    if (failed == kExitConnection) {
      std::fprintf(stderr, "to ask again without doing it twice, add: --request-id %s\n",
                   args.request_id.c_str());
    }
    return failed;
  }
  ExitCode code = kExitOk;
  if (args.wait && !operation->done()) {
    std::optional<std::chrono::milliseconds> limit;
    if (args.timeout_s > 0) limit = std::chrono::milliseconds(std::llround(args.timeout_s * 1000));
    code = WaitDone(**api, limit, &*operation);
  }
  const bool human = IsTable(options.output);
  if (human && operation->has_error()) {
    std::fprintf(stderr, "mtctl: %s of %s failed: %s\n", base::CleanLine(operation->verb()).c_str(),
                 args.job.c_str(), base::CleanLine(operation->error().message()).c_str());
  } else if (human && code == kExitOk) {
    const ExitCode printed =
        PrintText(OperationText(*operation, args.job, options.output == OutputFormat::kWide));
    if (printed != kExitOk) return printed;
    if (!operation->done())
      std::fprintf(stderr, "look at it: mtctl get operations %s\n",
                   base::CleanLine(operation->name()).c_str());
  } else if (!human) {
    const ExitCode printed = Print({.message = &*operation, .names = {operation->name()}}, options);
    if (printed != kExitOk) return printed;
  }
  return code != kExitOk ? code : ExitCodeOf(*operation);
}

}  // namespace mt::client
