// `mtctl follow`: a few lines on what happened so far, then the live line of `submit --follow`.
#include "client/session/follow.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/output/summary.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

constexpr int kEventsFollowed = 50;  // of which the newest are shown, the same ones as one

// Events are no reason to show nothing: without them the rest is shown.
v1::EventsChunk NewestEvents(const Api& api, const v1::Job& job) {
  v1::WatchEventsRequest request;
  request.mutable_job()->set_uid(job.uid());
  request.set_limit(kEventsFollowed);
  v1::EventsChunk events;
  StreamStopper stopper;
  (void)api.WatchEvents(request, &stopper, [&](const v1::EventsChunk& chunk) {
    events.mutable_events()->MergeFrom(chunk.events());
    return true;
  });
  return events;
}

ExitCode RunFollow(const std::string& name, bool samples, const GlobalOptions& options) {
  if (!IsTable(options.output)) {
    return Complain(base::InvalidArgument("follow is for people; for programs: mtctl metrics {} -w "
                                          "-o jsonl, or mtctl events {} -f -o jsonl",
                                          name, name),
                    kExitUsage);
  }
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto job = (*api)->GetJob(MakeJobRequest(options, name));
  if (!job.ok()) return Complain(job.status());
  const ExitCode printed =
      PrintText(JobSummary(*job, NewestEvents(**api, *job), MakeTableArgs(options)));
  if (printed != kExitOk) return printed;
  return Follow({.options = options, .job_uid = job->uid(), .samples = samples, .told = &*job});
}

}  // namespace

void AddFollow(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "follow", "Watch a job to its end, from any time on; Ctrl-C leaves it running");
  command->alias("attach");
  auto name = std::make_shared<std::string>();
  command->add_option("job", *name, "Name (the newest job of that name) or uid")->required();
  auto samples = std::make_shared<bool>(false);
  command->add_flag("--samples", *samples,
                    "What evaluations write, too (training.eval.prompts; later: mtctl samples)");
  command->callback(
      [=] { *context.run = [=] { return RunFollow(*name, *samples, *context.options); }; });
}

}  // namespace mt::client
