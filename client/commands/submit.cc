// `mtctl submit`: submits a job; with --follow it then follows the job to its end.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/job_file.h"
#include "client/commands/outlook.h"
#include "client/commands/submit_notes.h"
#include "client/session/follow.h"
#include "common/base/ids.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct SubmitArgs {
  JobFileArgs file;
  bool follow = false;
  bool wait = false;
  bool dry_run = false;
  bool restart = false;
  std::string request_id;
  std::string data_root;
};

// The job after a moment: placed, or with the reason why it is queued.
v1::Job SettledJob(const Api& api, v1::Job job) {
  v1::GetJobRequest request;
  request.mutable_job()->set_uid(job.uid());
  for (int i = 0; i < 10 && job.state() == v1::QUEUED && job.message().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    auto now = api.GetJob(request);
    if (!now.ok()) break;
    job = std::move(now).value();
  }
  return job;
}

ExitCode NotSubmitted(const Status& why, const v1::SubmitRequest& request) {
  const ExitCode failed = Complain(why);
  // The coordinator may have stored the job before the connection broke.
  if (failed == kExitConnection) {
    std::fprintf(stderr, "to ask again without doing it twice, add: --request-id %s\n",
                 request.request_id().c_str());
  }
  return failed;
}

ExitCode RunSubmit(const SubmitArgs& args, const GlobalOptions& options) {
  if (args.follow && IsStructured(options.output)) {
    return Complain(base::InvalidArgument("submit --follow is for people; for programs: submit "
                                          "--wait, which prints the job at its end"),
                    kExitUsage);
  }
  v1::JobSpec spec;
  bool names_directory = false;
  const ExitCode code = ReadJobFile(args.file, options, &spec, &names_directory);
  if (code != kExitOk) return code;
  if (args.dry_run) {
    const ExitCode printed = PrintJobFile(spec, options);
    if (printed == kExitOk) SayFieldNotes(spec);
    return printed;
  }
  SetDevPolicy(options, &spec);
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  // The coordinator knows what is there from earlier versions.
  if (!names_directory) request.mutable_spec()->mutable_checkpoint()->clear_directory();
  request.set_restart(args.restart);
  request.set_request_id(args.request_id.empty() ? base::NewUid() : args.request_id);
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const std::optional<v1::Job> before = JobBefore(request.spec(), **api, options);
  const auto response = (*api)->Submit(request);
  if (!response.ok()) return NotSubmitted(response.status(), request);
  // As the coordinator has chosen.
  const v1::Checkpoint& chosen = response->job().spec().checkpoint();
  if (chosen.has_directory()) spec.mutable_checkpoint()->set_directory(chosen.directory());
  SaySubmitNotes({.job = &spec,
                  .before = before ? &*before : nullptr,
                  .restart = args.restart,
                  .data_root = args.data_root},
                 **api, options);
  if (args.follow) {
    std::fprintf(stderr, "submitted job %s (%s)\n", response->job().name().c_str(),
                 response->job().uid().c_str());
    return Follow({.options = options, .job_uid = response->job().uid()});
  }
  if (args.wait) {
    return FollowThenPrint(
        {.options = options, .job_uid = response->job().uid(), .show = FollowShow::kStates}, **api);
  }
  const v1::Job job = SettledJob(**api, response->job());
  if (!IsTable(options.output)) return Print({.message = &job, .names = {job.name()}}, options);
  std::printf("job %s %s (%s)\n", job.name().c_str(),
              response->existed() ? "exists already" : "submitted", job.uid().c_str());
  if (job.state() == v1::QUEUED && !job.message().empty())
    std::printf("waiting: %s\n", base::CleanLine(job.message()).c_str());
  const std::string place = PlaceFlags(options);
  std::fprintf(stderr, "follow it: mtctl follow %s%s; logs: mtctl logs -f %s%s\n",
               job.name().c_str(), place.c_str(), job.name().c_str(), place.c_str());
  return kExitOk;
}

}  // namespace

void AddSubmit(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("submit", "Submit a training job");
  auto args = std::make_shared<SubmitArgs>();
  AddJobFileFlags(command, &args->file);
  AddDataRootFlag(command, &args->data_root);
  auto* follow = command->add_flag("--follow", args->follow,
                                   "Watch the job to its end; Ctrl-C leaves it running");
  command->add_flag("--wait", args->wait, "Wait for its end, without the live line")
      ->excludes(follow);
  auto* dry_run = command->add_flag("--dry-run", args->dry_run,
                                    "Check and print the job with all defaults, submit nothing");
  command
      ->add_flag("--restart", args->restart,
                 "Begin another run, whatever its directory holds: what is there stays")
      ->excludes(dry_run);
  command->add_option("--request-id", args->request_id,
                      "Repeat of an earlier submission: gives the same job");
  command->callback([=] { *context.run = [=] { return RunSubmit(*args, *context.options); }; });
}

}  // namespace mt::client
