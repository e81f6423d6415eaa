// `mtctl cancel` and `mtctl wait`.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/follow.h"
#include "client/output/json.h"
#include "common/base/ids.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct CancelArgs {
  std::string job;
  bool checkpoint = false;
  bool no_wait = false;
  std::string reason;
};

ExitCode RunCancel(const CancelArgs& args, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::CancelRequest request;
  *request.mutable_job() = MakeJobRequest(options, args.job).job();
  request.set_checkpoint_first(args.checkpoint);
  request.set_reason(args.reason);
  request.set_request_id(base::NewUid());
  auto operation = (*api)->Cancel(request);
  if (!operation.ok()) return Complain(operation.status());
  // A Wait ends after its own limit with the unfinished operation.
  constexpr int64_t kOneWaitMs = 10'000;
  while (!args.no_wait && !operation->done()) {
    v1::WaitOperationRequest wait;
    wait.set_name(operation->name());
    wait.set_timeout_ms(kOneWaitMs);
    operation = (*api)->WaitOperation(wait);
    if (!operation.ok()) return Complain(operation.status());
  }
  if (options.output == OutputFormat::kJson) std::fputs(JsonText(*operation).c_str(), stdout);
  if (operation->has_error()) {
    std::fprintf(stderr, "mtctl: %s\n", operation->error().message().c_str());
    return kExitServer;
  }
  if (options.output != OutputFormat::kJson) {
    std::printf("job %s %s\n", args.job.c_str(),
                operation->done()
                    ? operation->result().empty() ? "cancelled" : operation->result().c_str()
                    : ("is being cancelled: " + operation->name()).c_str());
  }
  return kExitOk;
}

struct WaitArgs {
  std::string job;
  double timeout_s = 0;
};

ExitCode RunWait(const WaitArgs& args, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto job = (*api)->GetJob(MakeJobRequest(options, args.job));
  if (!job.ok()) return Complain(job.status());
  FollowArgs follow{.options = options, .job_uid = job->uid(), .show_progress = false, .limit = {}};
  if (args.timeout_s > 0)
    follow.limit = std::chrono::milliseconds(std::llround(args.timeout_s * 1000));
  return Follow(follow);
}

}  // namespace

void AddCancel(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("cancel", "End a job");
  auto args = std::make_shared<CancelArgs>();
  command->add_option("job", args->job, "Name or uid")->required();
  command->add_flag("--checkpoint", args->checkpoint, "Save a checkpoint first");
  command->add_flag("--no-wait", args->no_wait, "Do not wait until its ranks are gone");
  command->add_option("--reason", args->reason, "Kept with the job's events");
  command->callback([=] { *context.run = [=] { return RunCancel(*args, *context.options); }; });
}

void AddWait(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("wait", "Wait until a job has ended");
  auto args = std::make_shared<WaitArgs>();
  command->add_option("job", args->job, "Name or uid")->required();
  command->add_option("--timeout", args->timeout_s, "Seconds (0: as long as it takes)")
      ->check(CLI::NonNegativeNumber);
  command->callback([=] { *context.run = [=] { return RunWait(*args, *context.options); }; });
}

}  // namespace mt::client
