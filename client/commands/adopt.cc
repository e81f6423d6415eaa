// `mtctl adopt`: rebuilds a job that the coordinator does not know from its orphaned ranks.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/session/session.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct AdoptArgs {
  std::string job;
  std::string reason;
};

ExitCode Adopt(const AdoptArgs& args, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::AdoptRequest request;
  const v1::GetJobRequest named = MakeJobRequest(options, args.job);
  request.set_job_uid(named.job().uid());
  request.set_name(named.job().name());
  request.set_reason(args.reason);
  const auto job = OrphansApi(**api).Adopt(request);
  if (!job.ok()) return Complain(job.status());
  if (IsTable(options.output)) {
    return PrintText(fmt::format("job {} ({}) goes on with the {} ranks that were found\n",
                                 job->name(), job->uid(), job->ranks_size()));
  }
  return Print({.message = &*job, .names = {job->name()}}, options);
}

}  // namespace

void AddAdopt(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "adopt", "Rebuild a job that the coordinator does not know from its ranks (get orphans)");
  auto args = std::make_shared<AdoptArgs>();
  command->add_option("job", args->job, "Its uid, or its name if no other orphan has it")
      ->required();
  command->add_option("--reason", args->reason, "Kept with the event");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return Adopt(*args, *options); };
  });
}

}  // namespace mt::client
