// `mtctl metrics`: prints a job's steps from its history (thinned, or with --all every one) or,
// with
// --watch, as they finish.
#include "client/output/metrics.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "client/commands/history.h"
#include "client/commands/history_walk.h"
#include "client/output/event_export.h"
#include "client/output/format.h"
#include "client/session/interrupt.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

constexpr int kTablePoints = 30;

struct MetricsArgs {
  HistoryArgs history;
  bool all = false;
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

// The command line that prints every step of what was asked for.
std::string AllStepsCommand(const HistoryArgs& args, const GlobalOptions& options) {
  std::string line = fmt::format("mtctl metrics {} --all", args.job);
  const auto bound = [](int64_t step) { return step > 0 ? std::to_string(step) : ""; };
  if (args.from_step > 0 || args.to_step > 0)
    line += fmt::format(" --steps {}:{}", bound(args.from_step), bound(args.to_step));
  if (args.since_ms > 0) line += fmt::format(" --since {}ms", args.since_ms);
  if (args.attempt > 0) line += fmt::format(" --attempt {}", args.attempt);
  if (!args.names.empty()) line += fmt::format(" --names {}", fmt::join(args.names, ","));
  if (options.output != OutputFormat::kTable)
    line += fmt::format(" -o {}", OutputFormatName(options.output));
  return line + PlaceFlags(options);
}

// Where points stand for several steps, that is said, with the way to all of them.
void SayThinned(const v1::History& history, const MetricsArgs& args, const GlobalOptions& options) {
  if (history.level() == 0 || history.steps_size() == 0) return;
  const int64_t from = std::max(args.history.from_step, history.first_step());
  std::fprintf(stderr, "mtctl: thinned: %d points for the steps %lld to %lld; every step: %s\n",
               history.steps_size(), static_cast<long long>(from),
               static_cast<long long>(history.steps(history.steps_size() - 1)),
               AllStepsCommand(args.history, options).c_str());
}

// Complains where a metric was asked for that no step has.
ExitCode CheckNames(const Metrics& metrics, const HistoryArgs& args) {
  for (const std::string& name : args.names) {
    if (std::find(metrics.names.begin(), metrics.names.end(), name) == metrics.names.end())
      return Complain(NoSuchMetric(args.job, name));
  }
  return kExitOk;
}

// Prints pages of steps as one output: its columns are those that the whole range has.
class AllSteps {
 public:
  AllSteps(const MetricsArgs& args, const GlobalOptions& options, std::vector<std::string> names)
      : printer_(args, options),
        names_(std::move(names)),
        events_(options.output == OutputFormat::kTensorboard),
        rows_differ_(options.output == OutputFormat::kJsonl && args.history.names.empty()) {}

  ExitCode Show(const v1::History& page) {
    if (events_) return PrintText(exported_.Page(page));
    Metrics metrics = FromHistory(page);
    for (const std::string& name : Align(rows_differ_, &names_, &metrics)) {
      if (rows_differ_ || !late_.insert(name).second) continue;
      std::fprintf(stderr, "mtctl: %s came up while the steps were read and is left out\n",
                   base::CleanLine(name).c_str());
    }
    return printer_.Show(std::move(metrics));
  }
  // Readers of event files drop what is replaced; of the others a later row counts.
  void OnReplaced(int64_t first, int64_t last) {
    if (events_) (void)PrintText(exported_.Again(first, NowMicros()));
    std::fprintf(stderr,
                 "mtctl: a rollback replaced steps %lld to %lld while they were read: they follow "
                 "again; of a step that comes twice the later row, of the higher epoch, counts\n",
                 static_cast<long long>(first), static_cast<long long>(last));
  }

 private:
  Printer printer_;
  EventExport exported_;
  std::vector<std::string> names_;
  std::set<std::string> late_;
  const bool events_;       // as an event file
  const bool rows_differ_;  // a row names its own columns, so later ones may have more
};

ExitCode ShowAll(MetricsArgs args, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  if (const Status found = FindRun(**api, &args.history, options); !found.ok())
    return Complain(found);
  // One thinned point has every column that any of its steps has.
  HistoryArgs whole = args.history;
  whole.points = 1;
  const auto head = FetchHistory(**api, whole, options);
  if (!head.ok()) return Complain(head.status());
  const Metrics metrics = FromHistory(*head);
  if (metrics.points.empty()) {
    std::fprintf(stderr, "no steps there\n");
    return kExitOk;
  }
  const ExitCode known = CheckNames(metrics, args.history);
  if (known != kExitOk) return known;
  AllSteps all(args, options, args.history.names.empty() ? metrics.names : args.history.names);
  return WalkHistory(
      **api, args.history, options,
      {.page = [&](const v1::History& page) { return all.Show(page); },
       .replaced = [&](int64_t first, int64_t last) { all.OnReplaced(first, last); }});
}

ExitCode ShowHistory(MetricsArgs args, const GlobalOptions& options) {
  if (args.history.points == 0 && IsTable(options.output)) args.history.points = kTablePoints;
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  if (const Status found = FindRun(**api, &args.history, options); !found.ok())
    return Complain(found);
  const auto history = FetchHistory(**api, args.history, options);
  if (!history.ok()) return Complain(history.status());
  const Metrics metrics = FromHistory(*history);
  if (metrics.points.empty()) {
    std::fprintf(stderr, "no steps there\n");
    return kExitOk;
  }
  const ExitCode known = CheckNames(metrics, args.history);
  if (known != kExitOk) return known;
  const ExitCode printed = Printer(args, options).Show(metrics);
  SayThinned(*history, args, options);
  return printed;
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
  // What is away may come back; what nobody named does not.
  if (const auto endpoint = ResolveEndpoint(options); !endpoint.ok())
    return Complain(endpoint.status());
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

// An event file holds every step, and is not for a terminal.
ExitCode CheckEventFile(const MetricsArgs& args) {
  if (!args.all) {
    return Complain(base::InvalidArgument("-o tensorboard writes every step: add --all"),
                    kExitUsage);
  }
  if (::isatty(STDOUT_FILENO) == 0) return kExitOk;
  return Complain(base::InvalidArgument("an event file is not for a terminal: write it to a file "
                                        "with \"tfevents\" in its name, > events.out.tfevents.{}",
                                        args.history.job),
                  kExitUsage);
}

ExitCode RunMetrics(const MetricsArgs& args, const GlobalOptions& options) {
  if (options.output == OutputFormat::kJson || options.output == OutputFormat::kYaml) {
    return Complain(base::InvalidArgument("metrics are printed line by line: use -o jsonl or csv"),
                    kExitUsage);
  }
  if (options.output == OutputFormat::kTensorboard) {
    const ExitCode fits = CheckEventFile(args);
    if (fits != kExitOk) return fits;
  }
  if (args.all) return ShowAll(args, options);
  return args.watch ? WatchMetrics(args, options) : ShowHistory(args, options);
}

}  // namespace

void AddMetrics(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("metrics",
                                  "Loss, speed and all else of a job's steps (-o table, wide, "
                                  "jsonl or csv; with --all tensorboard)");
  auto args = std::make_shared<MetricsArgs>();
  const RangeOptions ranges = AddHistoryFlags(command, &args->history);
  auto* all =
      command->add_flag("--all", args->all, "Every step, none thinned away, whatever their number")
          ->excludes(ranges.points);
  command->add_option("--names", args->history.names, "Only these: loss,grad_norm,...")
      ->delimiter(',');
  auto* watch = command->add_flag("-w,--watch", args->watch,
                                  "Steps as they are done, until the job ends or Ctrl-C");
  watch->excludes(ranges.steps)->excludes(ranges.since)->excludes(all)->excludes(ranges.attempt);
  command->add_option("--min-interval", args->min_interval_s, "Seconds between steps of --watch")
      ->check(CLI::Range(0.0, 3600.0))
      ->needs(watch);
  command->callback([=] { *context.run = [=] { return RunMetrics(*args, *context.options); }; });
}

}  // namespace mt::client
