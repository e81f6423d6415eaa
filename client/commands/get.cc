// `mtctl get jobs|nodes|orphans|checkpoints|operations|events|presets`: lists, with -w refreshed
// until Ctrl-C.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/events.h"
#include "client/commands/listing.h"
#include "client/commands/run_job.h"
#include "client/session/operations.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct GetArgs {
  std::string job;
  bool all_namespaces = false;
  bool live = false;
  std::vector<std::string> selector;
  WatchArgs watch;
};

bool Selected(const v1::Job& job, const std::vector<std::string>& selector) {
  return std::all_of(selector.begin(), selector.end(), [&](const std::string& wanted) {
    const size_t equals = wanted.find('=');
    const auto label = job.spec().labels().find(wanted.substr(0, equals));
    if (label == job.spec().labels().end()) return false;
    return equals == std::string::npos || label->second == wanted.substr(equals + 1);
  });
}

// Makes table rows from the items of a repeated field by a header and a row function.
template <class Items, class Header, class RowOf>
std::function<Rows(const TableArgs&)> RowsOf(const Items& items, Header header, RowOf row) {
  return [&items, header, row](const TableArgs& args) {
    Rows rows = {header(args)};
    for (const auto& item : items) rows.push_back(row(item, args));
    return rows;
  };
}

// Every page of the jobs that are asked for, or the one.
StatusOr<v1::ListJobsResponse> ListJobs(const Api& api, const GetArgs& args,
                                        const GlobalOptions& options) {
  v1::ListJobsResponse all;
  if (!args.job.empty()) {
    ASSIGN_OR_RETURN(*all.add_jobs(), api.GetJob(MakeJobRequest(options, args.job)));
    return all;
  }
  v1::ListJobsRequest request;
  if (!args.all_namespaces) request.set_namespace_(options.job_namespace);
  request.set_live_only(args.live);
  do {
    ASSIGN_OR_RETURN(const v1::ListJobsResponse page, api.ListJobs(request));
    for (const v1::Job& job : page.jobs()) {
      if (Selected(job, args.selector)) *all.add_jobs() = job;
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return all;
}

// Where was looked, and what to do.
std::string NoJobs(const GetArgs& args, const GlobalOptions& options) {
  std::string text = "no jobs";
  if (!args.selector.empty() || args.live) text += " of these";
  if (args.all_namespaces) return text + "; submit one: mtctl submit -f job.yaml --follow";
  return text + fmt::format(
                    " in namespace {} (-A looks in all); submit one: mtctl submit -f "
                    "job.yaml --follow",
                    options.job_namespace);
}

StatusOr<Listing> FetchJobs(const Api& api, const GetArgs& args, const GlobalOptions& options) {
  ASSIGN_OR_RETURN(v1::ListJobsResponse listed, ListJobs(api, args, options));
  const auto all = std::make_shared<v1::ListJobsResponse>(std::move(listed));
  return Listing{.message = all,
                 .items = "jobs",
                 .names = JobNames(*all, options.job_namespace),
                 .rows = RowsOf(all->jobs(), JobHeader, JobRow),
                 .empty = NoJobs(args, options)};
}

// Once, where it is looked at again and again.
void WarnOfNoOrders(const Api& api) {
  static std::string said;
  const auto server = api.GetInfo();
  if (!server.ok() || server->no_orders() == said) return;
  said = server->no_orders();
  if (!said.empty())
    fmt::print(stderr, "mtctl: warning: the coordinator gives no orders: {}\n", said);
}

StatusOr<Listing> FetchNodes(const Api& api) {
  ASSIGN_OR_RETURN(v1::ListNodesResponse answer, api.ListNodes());
  WarnOfNoOrders(api);
  auto nodes = std::make_shared<v1::ListNodesResponse>(std::move(answer));
  std::vector<std::string> names;
  for (const v1::Node& node : nodes->nodes()) names.push_back(node.name());
  return Listing{.message = nodes,
                 .items = "nodes",
                 .names = std::move(names),
                 .rows = RowsOf(nodes->nodes(), NodeHeader, NodeRow),
                 .empty = "no nodes; start a worker: mt-worker --coordinator HOST:PORT",
                 .notes = NodeNotes(*nodes)};
}

StatusOr<Listing> FetchOrphans(const Api& api) {
  ASSIGN_OR_RETURN(v1::ListOrphansResponse answer, OrphansApi(api).List());
  auto list = std::make_shared<v1::ListOrphansResponse>(std::move(answer));
  std::vector<std::string> names;
  for (const v1::Orphan& orphan : list->orphans()) names.push_back(orphan.job_uid());
  return Listing{.message = list,
                 .items = "orphans",
                 .names = std::move(names),
                 .rows = RowsOf(list->orphans(), OrphanHeader, OrphanRow),
                 .empty = "no orphans: every rank on the nodes belongs to a job that is known"};
}

StatusOr<Listing> FetchCheckpoints(const Api& api, const GetArgs& args,
                                   const GlobalOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job job, FindJobWithRun(api, args.job, options));
  v1::ListCheckpointsRequest request;
  request.mutable_job()->set_uid(job.uid());
  ASSIGN_OR_RETURN(v1::ListCheckpointsResponse answer, api.ListCheckpoints(request));
  auto list = std::make_shared<v1::ListCheckpointsResponse>(std::move(answer));
  std::vector<std::string> names;
  for (const v1::CheckpointInfo& checkpoint : list->checkpoints())
    names.push_back(std::to_string(checkpoint.step()));
  return Listing{.message = list,
                 .items = "checkpoints",
                 .names = std::move(names),
                 .rows = RowsOf(list->checkpoints(), CheckpointHeader, CheckpointRow),
                 .empty = "no checkpoints; save one: mtctl checkpoint " + args.job + " --wait"};
}

StatusOr<Listing> FetchOperations(const Api& api, const GetArgs& args,
                                  const GlobalOptions& options) {
  auto list = std::make_shared<v1::ListOperationsResponse>();
  if (IsOperationName(args.job)) {
    v1::GetOperationRequest request;
    request.set_name(args.job);
    ASSIGN_OR_RETURN(*list->add_operations(), api.GetOperation(request));
  } else {
    v1::ListOperationsRequest request;
    if (!args.job.empty()) *request.mutable_job() = MakeJobRequest(options, args.job).job();
    ASSIGN_OR_RETURN(*list, api.ListOperations(request));
  }
  std::vector<std::string> names;
  for (const v1::Operation& operation : list->operations()) names.push_back(operation.name());
  return Listing{.message = list,
                 .items = "operations",
                 .names = std::move(names),
                 .rows = RowsOf(list->operations(), OperationHeader, OperationRow),
                 .empty = "no operations"};
}

using Fetch = StatusOr<Listing> (*)(const Api&, const GetArgs&, const GlobalOptions&);

void AddList(CLI::App* list, const std::shared_ptr<GetArgs>& args, const CommandContext& context,
             Fetch fetch) {
  AddWatchFlags(list, &args->watch);
  list->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      return ShowListing(args->watch, *options,
                         [=](const Api& api) { return fetch(api, *args, *options); });
    };
  });
}

}  // namespace

void AddGet(const CommandContext& context) {
  CLI::App* command =
      context.app
          ->add_subcommand("get",
                           "List jobs, nodes, orphans, checkpoints, operations, events or presets")
          ->require_subcommand(1);
  const auto args = std::make_shared<GetArgs>();
  CLI::App* jobs = command->add_subcommand("jobs", "Jobs, newest first")->alias("job");
  jobs->add_option("job", args->job, "Only this one: its name or uid");
  jobs->add_flag("-A,--all-namespaces", args->all_namespaces, "Of every namespace");
  jobs->add_flag("--live", args->live, "Only jobs that have not ended");
  jobs->add_option("-l,--selector", args->selector, "Only jobs with these labels: KEY=VALUE or KEY")
      ->delimiter(',');
  AddList(jobs, args, context, FetchJobs);
  AddList(command->add_subcommand("nodes", "Workers and their slots")->alias("node"), args, context,
          [](const Api& api, const GetArgs&, const GlobalOptions&) { return FetchNodes(api); });
  AddList(command->add_subcommand("orphans", "Ranks on nodes that belong to no job known here")
              ->alias("orphan"),
          args, context,
          [](const Api& api, const GetArgs&, const GlobalOptions&) { return FetchOrphans(api); });
  CLI::App* checkpoints =
      command->add_subcommand("checkpoints", "What is on disk of a job, oldest first")
          ->alias("checkpoint");
  checkpoints->add_option("job", args->job, "Name or uid")->required();
  AddList(checkpoints, args, context, FetchCheckpoints);
  CLI::App* operations =
      command->add_subcommand("operations", "What was asked for, and how it went")
          ->alias("operation");
  operations->add_option("job", args->job,
                         "Name or uid of a job, or an operation's name (none: all)");
  AddList(operations, args, context, FetchOperations);
  AddGetPresets(command, context);
  AddEventsTo(
      command->add_subcommand("events", "What happened to a job, or to all")->alias("event"),
      context);
}

}  // namespace mt::client
