// `mtctl wait`: waits for a job's end, a state, a checkpoint, or an operation.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/usage.h"
#include "client/session/follow.h"
#include "client/session/operations.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct WaitArgs {
  std::string job;
  std::string condition;
  double timeout_s = 0;
};

// Parses "state=RUNNING" or "checkpoint=1200" into *target; returns "" or what would be accepted.
std::string ParseFor(const std::string& text, WaitTarget* target) {
  const size_t equals = text.find('=');
  const std::string kind = text.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (kind == "state") {
    std::string upper = value;
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    if (v1::JobState_Parse(upper, &state) && state != v1::JOB_STATE_UNSPECIFIED) {
      target->state = state;
      return "";
    }
    std::vector<std::string> names;
    for (int i = 1; i < v1::JobState_descriptor()->value_count(); ++i)
      names.push_back(v1::JobState_descriptor()->value(i)->name());
    if (upper == "DONE" || upper == "COMPLETE" || upper == "COMPLETED")
      return "no state '" + value + "'; did you mean SUCCEEDED?";
    return "state: " + NoSuchValue(upper, names);
  }
  if (kind == "checkpoint" && CLI::detail::lexical_cast(value, target->checkpoint_step) &&
      target->checkpoint_step > 0) {
    return "";
  }
  return "expected state=NAME or checkpoint=STEP, got " + text;
}

ExitCode WaitForOperation(const WaitArgs& args, const GlobalOptions& options,
                          std::optional<std::chrono::milliseconds> limit) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::GetOperationRequest request;
  request.set_name(args.job);
  auto operation = (*api)->GetOperation(request);
  if (!operation.ok()) return Complain(operation.status());
  const ExitCode code = WaitDone(**api, limit, &*operation);
  if (code != kExitOk) return code;
  if (!IsTable(options.output)) {
    const ExitCode printed = Print({.message = &*operation, .names = {operation->name()}}, options);
    return printed != kExitOk ? printed : ExitCodeOf(*operation);
  }
  if (operation->has_error()) {
    std::fprintf(stderr, "mtctl: %s failed: %s\n", base::CleanLine(operation->verb()).c_str(),
                 base::CleanLine(operation->error().message()).c_str());
  }
  return ExitCodeOf(*operation);
}

ExitCode RunWait(const WaitArgs& args, const GlobalOptions& options) {
  std::optional<std::chrono::milliseconds> limit;
  if (args.timeout_s > 0) limit = std::chrono::milliseconds(std::llround(args.timeout_s * 1000));
  if (IsOperationName(args.job)) return WaitForOperation(args, options, limit);
  FollowArgs follow{.options = options, .job_uid = {}, .show = FollowShow::kStates, .limit = limit};
  if (!args.condition.empty()) (void)ParseFor(args.condition, &follow.until);
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto job = (*api)->GetJob(MakeJobRequest(options, args.job));
  if (!job.ok()) return Complain(job.status());
  follow.job_uid = job->uid();
  return FollowThenPrint(follow, **api);
}

}  // namespace

void AddWait(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "wait", "Wait until a job has ended, or until --for; or until an operation is done");
  auto args = std::make_shared<WaitArgs>();
  command->add_option("job", args->job, "Name or uid of a job, or an operation's name")->required();
  command->add_option("--for", args->condition, "state=NAME, or checkpoint=STEP (or a later one)")
      ->check(CLI::Validator(
          [](const std::string& text) {
            WaitTarget ignored;
            return ParseFor(text, &ignored);
          },
          "", "condition"));
  command->add_option("--timeout", args->timeout_s, "Seconds (0: as long as it takes); exit code 8")
      ->check(CLI::NonNegativeNumber);
  command->callback([=] { *context.run = [=] { return RunWait(*args, *context.options); }; });
}

}  // namespace mt::client
