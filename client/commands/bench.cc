// `mtctl bench`: runs a job file as a benchmark: submit, follow, report.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/job_file.h"
#include "client/output/json.h"
#include "client/session/follow.h"
#include "common/base/ids.h"
#include "common/report/bench_text.h"
#include "common/spec/job_kind.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct BenchArgs {
  JobFileArgs file;
  int64_t steps = 0;    // 0: as in the job file
  int64_t warmup = -1;  // -1: as in the job file
  bool kernels = false;
};

// The overrides of a benchmark, the user's --set and the flags, in this order: the later one wins.
JobFileArgs WithOverrides(const BenchArgs& args) {
  JobFileArgs file = args.file;
  file.overrides = spec::BenchOverrides();
  file.overrides.insert(file.overrides.end(), args.file.overrides.begin(),
                        args.file.overrides.end());
  if (args.steps > 0) file.overrides.push_back(fmt::format("bench.steps={}", args.steps));
  if (args.warmup >= 0) file.overrides.push_back(fmt::format("bench.warmup={}", args.warmup));
  if (args.kernels) file.overrides.emplace_back("bench.kernels=true");
  return file;
}

// A benchmark is no run of the job that it measures: it has a name of its own, unless one is given.
void NameBenchmark(const BenchArgs& args, v1::JobSpec* job) {
  constexpr std::string_view kEnding = "-bench";
  constexpr size_t kLongestName = 63;
  const bool named = std::ranges::any_of(args.file.overrides, [](const std::string& override) {
    return override.starts_with("name=");
  });
  if (named || job->name().ends_with(kEnding) || job->name().starts_with("bench-")) return;
  job->set_name(job->name().substr(0, kLongestName - kEnding.size()).append(kEnding));
}

ExitCode PrintReport(const Api& api, const std::string& uid, const GlobalOptions& options) {
  v1::GetJobRequest request;
  request.mutable_job()->set_uid(uid);
  const auto job = api.GetJob(request);
  if (!job.ok()) return Complain(job.status());
  if (!job->has_bench())
    return Complain(base::Internal("job {} ended without a report", job->name()));
  if (IsTable(options.output)) return PrintText(report::BenchText(job->bench()));
  return Print({.message = &job->bench(), .names = {job->name()}}, options);
}

ExitCode RunBench(const BenchArgs& args, const GlobalOptions& options) {
  v1::SubmitRequest request;
  const ExitCode read = ReadJobFile(WithOverrides(args), options, request.mutable_spec());
  if (read != kExitOk) return read;
  NameBenchmark(args, request.mutable_spec());
  SetDevPolicy(options, request.mutable_spec());
  request.set_request_id(base::NewUid());
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto response = (*api)->Submit(request);
  if (!response.ok()) return Complain(response.status());
  const std::string& uid = response->job().uid();
  std::fprintf(stderr, "submitted benchmark %s (%s)\n", response->job().name().c_str(),
               uid.c_str());
  const ExitCode followed =
      Follow({.options = options,
              .job_uid = uid,
              .show = IsTable(options.output) ? FollowShow::kAll : FollowShow::kNothing});
  return followed == kExitOk ? PrintReport(**api, uid, options) : followed;
}

}  // namespace

void AddBench(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "bench", "Run a job file as a benchmark: no evaluation, no checkpoints, a report at the end");
  auto args = std::make_shared<BenchArgs>();
  AddJobFileFlags(command, &args->file);
  command->add_option("--steps", args->steps, "Steps that are timed [bench.steps: 50]")
      ->check(CLI::PositiveNumber);
  command->add_option("--warmup", args->warmup, "Steps before the clock starts [bench.warmup: 10]")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--kernels", args->kernels,
                    "Time each kernel of a step by itself too and relate the step to their sum");
  command->callback([=] { *context.run = [=] { return RunBench(*args, *context.options); }; });
}

}  // namespace mt::client
