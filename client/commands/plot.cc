// `mtctl plot`: draws a metric of a run, or of two, in the terminal or as a picture: one curve of a
// run, however often its job was submitted again.
#include "client/plot/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "client/commands/history.h"
#include "client/output/metrics.h"
#include "client/plot/plot_image.h"
#include "common/base/files.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

constexpr int kDefaultWidth = 80;
constexpr int kDefaultHeight = 20;
constexpr int kMostHeight = 40;
constexpr int kImagePoints = 2400;    // two for each pixel of a picture's width
constexpr int kSmoothPoints = 10000;  // the most that one answer has

struct PlotFlags {
  HistoryArgs history;
  std::string metric = "loss";
  std::string vs;     // the second run; "": none
  double smooth = 0;  // steps of the moving average; 0: none
  std::string png;    // a file instead of the terminal
  bool ascii = false;
  int width = 0;
  int height = 0;
};

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string lower = CLI::detail::to_lower(value);
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

PlotArgs MakePlotArgs(const PlotFlags& flags, const GlobalOptions& options) {
  PlotArgs args{.width = kDefaultWidth,
                .height = kDefaultHeight,
                .ascii = flags.ascii || !LocaleIsUtf8(),
                .color = MakeStyle(options).color};
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    args.width = size.ws_col;
    args.height = std::clamp(size.ws_row - 2, 6, kMostHeight);
  }
  if (flags.width > 0) args.width = flags.width;
  if (flags.height > 0) args.height = flags.height;
  return args;
}

// A run that is drawn.
struct Run {
  std::string job;  // as the user calls it
  v1::History history;
};

// Steps from one point to the next, on the average.
int64_t StepsPerPoint(const v1::History& history) {
  const int points = history.steps_size();
  if (points < 2) return 1;
  const int64_t steps = history.steps(points - 1) - history.steps(0);
  return std::max<int64_t>(1, (steps + (points - 1) / 2) / (points - 1));
}

// "loss", of two runs "gpt-demo loss"; what was done to it behind.
std::string SeriesName(const PlotFlags& flags, const Run& run, const std::string& what) {
  return flags.vs.empty() ? what : run.job + " " + what;
}

// What smoothing made of the curve: " (EMA over 50 steps)".
std::string SmoothText(const PlotFlags& flags, const Run& run) {
  if (flags.smooth <= 0) return "";
  const int64_t apart = StepsPerPoint(run.history);
  return fmt::format(" (EMA over {} steps{})", flags.smooth,
                     apart > 1 ? fmt::format(", 1 point in {}", apart) : "");
}

Series TrainSeries(const Run& run, const PlotFlags& flags) {
  Series out{.name = SeriesName(flags, run, flags.metric) + SmoothText(flags, run)};
  for (const auto& column : run.history.columns()) {
    if (column.name() != flags.metric) continue;
    for (int i = 0; i < column.last_size() && i < run.history.steps_size(); ++i) {
      out.x.push_back(static_cast<double>(run.history.steps(i)));
      out.y.push_back(column.last(i));
    }
  }
  return flags.smooth > 0 ? Smoothed(out, flags.smooth) : out;
}

// Of an evaluation, what the metric is of a step; nullopt: it is none of evaluations, or not known.
std::optional<double> ValueOf(const v1::EvalRecord& eval, const std::string& metric) {
  if (metric == "loss") return eval.loss();
  if (metric == "perplexity" && eval.has_perplexity()) return eval.perplexity();
  if (metric == "bits_per_byte" && eval.has_bits_per_byte()) return eval.bits_per_byte();
  return std::nullopt;
}

Series ValidationSeries(const Run& run, const PlotFlags& flags) {
  Series out{.name = SeriesName(flags, run, "validation " + flags.metric), .marks = true};
  for (const v1::EvalRecord& eval : run.history.evals()) {
    if (!eval.split().empty() && eval.split() != "valid") continue;
    const std::optional<double> value = ValueOf(eval, flags.metric);
    if (!value) continue;
    out.x.push_back(static_cast<double>(eval.step()));
    out.y.push_back(*value);
  }
  return out;
}

StatusOr<std::vector<Run>> FetchRuns(const PlotFlags& flags, const GlobalOptions& options) {
  ASSIGN_OR_RETURN(const auto api, ConnectApi(options));
  std::vector<Run> runs;
  for (const std::string& job : {flags.history.job, flags.vs}) {
    if (job.empty()) continue;
    HistoryArgs args = flags.history;
    args.job = job;
    RETURN_IF_ERROR(FindRun(*api, &args, options));
    ASSIGN_OR_RETURN(v1::History history, FetchHistory(*api, args, options));
    runs.push_back({.job = job, .history = std::move(history)});
  }
  return runs;
}

// The curves of all runs. A run that has steps without this metric is a mistake.
StatusOr<std::vector<Series>> MakeSeries(const std::vector<Run>& runs, const PlotFlags& flags) {
  std::vector<Series> out;
  for (const Run& run : runs) {
    const bool second = &run != &runs.front();
    Series train = TrainSeries(run, flags);
    if (run.history.steps_size() > 0 && train.x.empty()) return NoSuchMetric(run.job, flags.metric);
    train.second = second;
    out.push_back(std::move(train));
    Series validation = ValidationSeries(run, flags);
    validation.second = second;
    if (!validation.x.empty()) out.push_back(std::move(validation));
  }
  return out;
}

ExitCode WritePicture(const std::vector<Series>& series, const PlotFlags& flags) {
  const PlotImageArgs args{.y_name = flags.metric, .perplexity = flags.metric == "loss"};
  const std::string bytes = PlotPng(series, args);
  if (bytes.empty())
    return Complain(base::NotFound("no steps to draw yet: {} is not written", flags.png));
  const Status written = base::WriteFileAtomic(flags.png, bytes);
  if (!written.ok()) return Complain(written, kExitIo);
  std::fprintf(stderr, "wrote %s (%d x %d)\n", flags.png.c_str(), args.width, args.height);
  return kExitOk;
}

ExitCode RunPlot(PlotFlags flags, const GlobalOptions& options) {
  if (!IsTable(options.output)) {
    return Complain(
        base::InvalidArgument("plot draws, and has no other format; the numbers: mtctl metrics {} "
                              "-o jsonl",
                              flags.history.job),
        kExitUsage);
  }
  PlotArgs args = MakePlotArgs(flags, options);
  args.perplexity = flags.metric == "loss";
  if (flags.history.points == 0) {
    // Braille has two dots per character horizontally; more points could not be told apart. An
    // average wants every step.
    flags.history.points = flags.smooth > 0    ? kSmoothPoints
                           : flags.png.empty() ? 2 * args.width
                                               : kImagePoints;
  }
  flags.history.names = {flags.metric};
  const auto runs = FetchRuns(flags, options);
  if (!runs.ok()) return Complain(runs.status());
  const auto series = MakeSeries(*runs, flags);
  if (!series.ok()) return Complain(series.status());
  if (!flags.png.empty()) return WritePicture(*series, flags);
  const std::string text = Plot(*series, args);
  if (!text.empty()) return PrintText(text);
  std::fprintf(stderr, "no steps to draw yet\n");
  return kExitOk;
}

void AddPictureFlags(CLI::App* command, PlotFlags* flags) {
  command->add_flag("--ascii", flags->ascii, "Without Unicode (the default outside UTF-8 locales)");
  command->add_option("--width", flags->width, "Characters (default: the terminal's)")
      ->check(CLI::Range(30, 1000));
  command->add_option("--height", flags->height, "Lines (default: the terminal's)")
      ->check(CLI::Range(6, 200));
  command->add_option("--png", flags->png, "Write a picture to this file instead");
}

}  // namespace

void AddPlot(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "plot",
      "Draw a curve of a job, or of two: loss (with perplexity), bits_per_byte, or another metric; "
      "evaluations are marks");
  auto flags = std::make_shared<PlotFlags>();
  const RangeOptions ranges = AddHistoryFlags(command, &flags->history);
  command->add_option("metric", flags->metric, "loss, bits_per_byte, grad_norm, ...")
      ->capture_default_str();
  auto* vs = command->add_option("--vs", flags->vs, "A second job, drawn into the same plot");
  ranges.attempt->excludes(vs);
  command
      ->add_option("--smooth", flags->smooth,
                   "Exponential moving average: a step N back counts 1/e of the newest")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  AddPictureFlags(command, flags.get());
  command->callback([=] { *context.run = [=] { return RunPlot(*flags, *context.options); }; });
}

}  // namespace mt::client
