// `mtctl describe`: everything known about one job or, with `describe node`, about one node.
#include "client/output/describe.h"

#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/commands/run_job.h"
#include "client/output/describe_node.h"
#include "client/output/json.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

constexpr int kEventsRead = 100;  // of which the newest are shown, the same ones as one

// Reports a part of the description that could not be fetched; the job itself is shown regardless.
void SayMissing(const char* what, const Status& status) {
  if (!status.ok())
    std::fprintf(stderr, "mtctl: no %s: %s\n", what,
                 base::CleanText(base::Message(status)).c_str());
}

v1::ListOperationsResponse FetchOperations(const Api& api, const v1::Job& job) {
  v1::ListOperationsRequest request;
  request.mutable_job()->set_uid(job.uid());
  auto operations = api.ListOperations(request);
  SayMissing("operations", operations.status());
  return operations.ok() ? std::move(operations).value() : v1::ListOperationsResponse();
}

v1::EventsChunk FetchEvents(const Api& api, const v1::Job& job) {
  v1::WatchEventsRequest request;
  request.mutable_job()->set_uid(job.uid());
  request.set_limit(kEventsRead);
  v1::EventsChunk events;
  StreamStopper stopper;
  SayMissing("events", api.WatchEvents(request, &stopper, [&](const v1::EventsChunk& chunk) {
    events.mutable_events()->MergeFrom(chunk.events());
    return true;
  }));
  return events;
}

// The job of an attempt of the run that `job` trains.
StatusOr<v1::Job> JobOfAttempt(const Api& api, const v1::Job& job, int attempt) {
  v1::QueryHistoryRequest request;
  request.mutable_job()->set_uid(job.uid());
  request.set_points(1);
  request.set_attempt(attempt);
  ASSIGN_OR_RETURN(const v1::History history, api.QueryHistory(request));
  v1::GetJobRequest wanted;
  for (const v1::EpochRun& one : history.runs()) {
    if (one.attempt() == attempt) wanted.mutable_job()->set_uid(one.job_uid());
  }
  if (wanted.has_job()) return api.GetJob(wanted);
  return base::NotFound("attempt {} of job {} is not known any more", attempt, job.name());
}

struct DescribeArgs {
  std::string name;
  bool with_spec = false;
  int attempt = 0;  // the job of that attempt of the run; 0: the job that is named
};

StatusOr<v1::Job> FetchDescribed(const Api& api, const DescribeArgs& args,
                                 const GlobalOptions& options) {
  if (args.attempt == 0) return api.GetJob(MakeJobRequest(options, args.name));
  ASSIGN_OR_RETURN(const v1::Job job, FindJobWithRun(api, args.name, options));
  return JobOfAttempt(api, job, args.attempt);
}

ExitCode RunDescribe(const DescribeArgs& args, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto job = FetchDescribed(**api, args, options);
  if (!job.ok()) return Complain(job.status());
  if (options.output == OutputFormat::kNone) return kExitOk;
  if (options.output == OutputFormat::kName) return PrintText(job->name() + "\n");
  const v1::ListOperationsResponse operations = FetchOperations(**api, *job);
  const v1::EventsChunk events = FetchEvents(**api, *job);
  if (!IsStructured(options.output)) {
    return PrintText(DescribeJob(
        {.job = &*job, .operations = &operations, .events = &events, .spec = args.with_spec},
        MakeTableArgs(options)));
  }
  nlohmann::ordered_json tree = MessageToJson(*job);
  tree["operations"] = MessageToJson(operations)["operations"];
  tree["events"] = MessageToJson(events)["events"];
  return PrintText(RenderTree(tree, options.output));
}

ExitCode RunDescribeNode(const std::string& name, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto nodes = (*api)->ListNodes();
  if (!nodes.ok()) return Complain(nodes.status());
  for (const v1::Node& node : nodes->nodes()) {
    if (node.name() != name) continue;
    if (IsTable(options.output)) return PrintText(DescribeNode(node, MakeTableArgs(options)));
    return Print({.message = &node, .names = {node.name()}}, options);
  }
  return Complain(base::NotFound("no node '{}' (mtctl get nodes lists them)", name));
}

}  // namespace

void AddDescribe(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("describe", "Everything about one job or node");
  const auto args = std::make_shared<DescribeArgs>();
  const auto add_flags = [&args](CLI::App* to) {
    to->add_flag("--spec", args->with_spec, "With the job's whole spec, defaults included");
    to->add_option("--attempt", args->attempt,
                   "The job that was this attempt of the run, 1 the first")
        ->check(CLI::PositiveNumber);
  };
  // Not marked as required: CLI11 would then demand it beside `describe node` as well.
  auto* job = command->add_option("job", args->name, "Name (the newest job of that name) or uid");
  add_flags(command);
  // kubectl's form; without a name it is a job that is called so.
  CLI::App* kind = command->add_subcommand("job", "A job, as without this word")->alias("jobs");
  auto kind_name = std::make_shared<std::string>("job");
  kind->add_option("job", *kind_name, "Name (the newest job of that name) or uid");
  add_flags(kind);
  kind->callback([=] {
    *context.run = [=] {
      args->name = *kind_name;
      return RunDescribe(*args, *context.options);
    };
  });
  CLI::App* node = command->add_subcommand("node", "A node: its slots, its GPUs")->alias("nodes");
  auto node_name = std::make_shared<std::string>();
  node->add_option("node", *node_name, "Its name")->required();
  node->callback(
      [=] { *context.run = [=] { return RunDescribeNode(*node_name, *context.options); }; });
  command->callback([=] {
    if (!command->get_subcommands().empty()) return;
    if (job->count() == 0) throw CLI::RequiredError("job");
    *context.run = [=] { return RunDescribe(*args, *context.options); };
  });
}

}  // namespace mt::client
