// `mtctl get jobs|nodes`: tables.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/output/format.h"
#include "client/output/json.h"
#include "common/base/clock.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

int64_t NowMicros() { return base::ToUnixMicros(base::Clock::Real()->WallNow()); }

std::vector<std::string> JobRow(const v1::Job& job, int64_t now) {
  const int64_t step = job.last_step().step();
  return {
      job.name(),
      StateText(job),
      fmt::format("{}/{}", step, job.total_steps() > 0 ? std::to_string(job.total_steps()) : "-"),
      step > 0 ? fmt::format("{:.4f}", job.last_step().loss()) : "-",
      job.last_eval().step() > 0 ? fmt::format("{:.4f}", job.last_eval().loss()) : "-",
      step > 0 ? FormatRate(job.last_step().tokens_per_second()) : "-",
      std::to_string(job.slots()),
      FormatAge(job.created_us(), now),
      job.message()};
}

ExitCode GetJobs(const GlobalOptions& options, bool all_namespaces, bool live_only) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::ListJobsRequest request;
  if (!all_namespaces) request.set_namespace_(options.job_namespace);
  request.set_live_only(live_only);
  v1::ListJobsResponse all;
  do {
    auto page = (*api)->ListJobs(request);
    if (!page.ok()) return Complain(page.status());
    all.mutable_jobs()->MergeFrom(page->jobs());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (options.output == OutputFormat::kJson) {
    std::fputs(JsonText(all).c_str(), stdout);
    return kExitOk;
  }
  if (all.jobs().empty()) {
    std::fprintf(stderr, "no jobs; submit one: mtctl submit -f job.yaml --follow\n");
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "STATE", "STEP", "LOSS", "VALID", "TOK/S", "SLOTS", "AGE", "MESSAGE"}};
  for (const v1::Job& job : all.jobs()) rows.push_back(JobRow(job, NowMicros()));
  std::fputs(Table(rows).c_str(), stdout);
  return kExitOk;
}

ExitCode GetNodes(const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto response = (*api)->ListNodes();
  if (!response.ok()) return Complain(response.status());
  if (options.output == OutputFormat::kJson) {
    std::fputs(JsonText(*response).c_str(), stdout);
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "STATE", "SLOTS", "FREE", "DEVICE", "CORES", "MEMORY", "HEARTBEAT", "VERSION"}};
  for (const v1::Node& node : response->nodes()) {
    const auto free = std::count_if(node.slots().begin(), node.slots().end(),
                                    [](const v1::Slot& s) { return s.job_uid().empty(); });
    const bool gpu = std::any_of(node.slots().begin(), node.slots().end(),
                                 [](const v1::Slot& s) { return s.device() == v1::GPU; });
    rows.push_back({node.name(), v1::NodeState_Name(node.state()).substr(5),
                    std::to_string(node.slots_size()), std::to_string(free), gpu ? "gpu" : "cpu",
                    std::to_string(node.cores()), FormatBytes(node.memory_bytes()),
                    FormatAge(node.last_heartbeat_us(), NowMicros()), node.version()});
  }
  std::fputs(Table(rows).c_str(), stdout);
  return kExitOk;
}

}  // namespace

void AddGet(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("get", "List jobs or nodes")->require_subcommand(1);
  struct Args {
    bool all_namespaces = false;
    bool live = false;
  };
  auto args = std::make_shared<Args>();
  CLI::App* jobs = command->add_subcommand("jobs", "Jobs, newest first");
  jobs->add_flag("-A,--all-namespaces", args->all_namespaces, "Of every namespace");
  jobs->add_flag("--live", args->live, "Only jobs that have not ended");
  jobs->callback([=] {
    *context.run = [=] { return GetJobs(*context.options, args->all_namespaces, args->live); };
  });
  CLI::App* nodes = command->add_subcommand("nodes", "Workers and their slots");
  nodes->callback([=] { *context.run = [=] { return GetNodes(*context.options); }; });
}

}  // namespace mt::client
