// `mtctl metrics`: prints a job's steps from its history or, with --watch, as they finish.
#include "client/output/metrics.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>

#include "client/commands/history.h"
#include "client/output/format.h"
#include "client/session/interrupt.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

constexpr int kTablePoints = 30;

struct MetricsArgs {
  HistoryArgs history;
  bool watch = false;
  double min_interval_s = 0;
};

// Prints points in the requested format; successive calls form one output (one header).
class Printer {
 public:
  Printer(const MetricsArgs& args, const GlobalOptions& options) : args_(args), options_(options) {}

  ExitCode Show(Metrics metrics) {
    if (!args_.history.names.empty()) metrics = Select(metrics, args_.history.names);
    const bool first = std::exchange(first_, false);
    switch (options_.output) {
      case OutputFormat::kJsonl:
        return PrintText(MetricsJsonl(metrics));
      case OutputFormat::kCsv:
        return PrintText(MetricsCsv(metrics, first));
      case OutputFormat::kTable:
      case OutputFormat::kWide:
        return PrintText(TableText(metrics, first));
      case OutputFormat::kName:
        return PrintText(Names(metrics));
      default:
        return kExitOk;
    }
  }

 private:
  std::string TableText(const Metrics& metrics, bool first) {
    // Metrics that were asked for by name are all shown.
    const bool wide = options_.output == OutputFormat::kWide || !args_.history.names.empty();
    Rows rows = MetricsRows(metrics, MakeStyle(options_), wide);
    if (!first) rows.erase(rows.begin());
    return Table(rows, &widths_);
  }
  static std::string Names(const Metrics& metrics) {
    std::string out;
    for (const MetricPoint& point : metrics.points) out += std::to_string(point.step) + "\n";
    return out;
  }

  const MetricsArgs& args_;
  const GlobalOptions& options_;
  bool first_ = true;
  std::vector<size_t> widths_;
};

ExitCode ShowHistory(MetricsArgs args, const GlobalOptions& options) {
  if (args.history.points == 0 && IsTable(options.output)) args.history.points = kTablePoints;
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto history = FetchHistory(**api, args.history, options);
  if (!history.ok()) return Complain(history.status());
  const Metrics metrics = FromHistory(*history);
  for (const std::string& name : args.history.names) {
    if (!metrics.points.empty() &&
        std::find(metrics.names.begin(), metrics.names.end(), name) == metrics.names.end())
      return Complain(base::NotFound("job {} has no metric {}", args.history.job, name));
  }
  if (metrics.points.empty()) {
    std::fprintf(stderr, "no steps there\n");
    return kExitOk;
  }
  return Printer(args, options).Show(metrics);
}

void SayDropped(int64_t dropped) {
  if (dropped <= 0) return;
  std::fprintf(stderr,
               "mtctl: %lld steps left out: this program read too slowly (all are in the history: "
               "--steps)\n",
               static_cast<long long>(dropped));
}

// Resumes after the last step seen when the coordinator is back; ends with the job.
ExitCode WatchMetrics(const MetricsArgs& args, const GlobalOptions& options) {
  StreamStopper stopper;
  const InterruptScope scope(&stopper);
  Printer printer(args, options);
  v1::StreamMetricsRequest request;
  request.set_min_interval_ms(static_cast<int64_t>(args.min_interval_s * 1000));
  bool away = false;
  ExitCode written = kExitOk;
  while (!stopper.stopped()) {
    auto api = ConnectApi(options);
    Status status = api.status();
    if (api.ok() && request.job().uid().empty()) {
      const auto job = (*api)->GetJob(MakeJobRequest(options, args.history.job));
      if (!job.ok()) return Complain(job.status());
      request.mutable_job()->set_uid(job->uid());
      request.set_since_step(std::max<int64_t>(0, job->last_step().step() - 1));
    }
    if (api.ok()) {
      status = (*api)->StreamMetrics(request, &stopper, [&](const v1::MetricsChunk& chunk) {
        away = false;
        SayDropped(chunk.dropped());
        for (const v1::StepRecord& step : chunk.steps()) {
          request.set_since_step(step.step());
          written = printer.Show(FromStep(step));
          if (written != kExitOk) return false;
        }
        return true;
      });
    }
    if (stopper.stopped()) break;
    if (written != kExitOk || status.ok()) return written;
    if (ExitCodeOf(status) != kExitConnection && !absl::IsCancelled(status))
      return Complain(status);
    if (!away) (void)Complain(status);
    away = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return kExitInterrupted;
}

ExitCode RunMetrics(const MetricsArgs& args, const GlobalOptions& options) {
  if (options.output == OutputFormat::kJson || options.output == OutputFormat::kYaml) {
    return Complain(base::InvalidArgument("metrics are printed line by line: use -o jsonl or csv"),
                    kExitUsage);
  }
  return args.watch ? WatchMetrics(args, options) : ShowHistory(args, options);
}

}  // namespace

void AddMetrics(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "metrics", "Loss, speed and all else of a job's steps (-o table, wide, jsonl or csv)");
  auto args = std::make_shared<MetricsArgs>();
  const RangeOptions ranges = AddHistoryFlags(command, &args->history);
  command->add_option("--names", args->history.names, "Only these: loss,grad_norm,...")
      ->delimiter(',');
  auto* watch = command->add_flag("-w,--watch", args->watch,
                                  "Steps as they are done, until the job ends or Ctrl-C");
  watch->excludes(ranges.steps)->excludes(ranges.since);
  command->add_option("--min-interval", args->min_interval_s, "Seconds between steps of --watch")
      ->check(CLI::Range(0.0, 3600.0))
      ->needs(watch);
  command->callback([=] { *context.run = [=] { return RunMetrics(*args, *context.options); }; });
}

}  // namespace mt::client
