// `mtctl plot`: draws a metric of a run in the terminal: one curve, however often the job was
// submitted again.
#include "client/output/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "client/commands/attempts.h"
#include "client/commands/history.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

constexpr int kDefaultWidth = 80;
constexpr int kDefaultHeight = 20;
constexpr int kMostHeight = 40;

struct PlotFlags {
  HistoryArgs history;
  std::string metric = "loss";
  int attempt = 0;  // 1 is the oldest; 0: all, as one curve
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

Series TrainSeries(const v1::History& history, const std::string& metric) {
  Series out{.name = metric};
  for (const auto& column : history.columns()) {
    if (column.name() != metric) continue;
    for (int i = 0; i < std::min(column.last_size(), history.steps_size()); ++i) {
      out.x.push_back(static_cast<double>(history.steps(i)));
      out.y.push_back(column.last(i));
    }
  }
  return out;
}

Series ValidationSeries(const v1::History& history) {
  Series out{.name = "validation loss", .marks = true};
  for (const v1::EvalRecord& eval : history.evals()) {
    if (!eval.split().empty() && eval.split() != "valid") continue;
    out.x.push_back(static_cast<double>(eval.step()));
    out.y.push_back(eval.loss());
  }
  return out;
}

// The curve of the whole run, or of the one attempt that was asked for.
StatusOr<v1::History> FetchCurve(const Api& api, const PlotFlags& flags,
                                 const GlobalOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<v1::Job> attempts,
                   AttemptsOf(api, flags.history.job, options));
  if (flags.attempt == 0) return FetchRun(api, attempts, flags.history, options);
  const auto number = static_cast<size_t>(flags.attempt);
  if (number > attempts.size()) {
    return base::NotFound("job {} has {} attempt{}", flags.history.job, attempts.size(),
                          attempts.size() == 1 ? "" : "s");
  }
  return FetchRun(api, {attempts[number - 1]}, flags.history, options);
}

ExitCode RunPlot(PlotFlags flags, const GlobalOptions& options) {
  if (!IsTable(options.output)) {
    return Complain(
        base::InvalidArgument("a plot has no other format; the numbers: mtctl metrics {} "
                              "-o jsonl",
                              flags.history.job),
        kExitUsage);
  }
  const PlotArgs args = MakePlotArgs(flags, options);
  // Braille has two dots per character horizontally; more points could not be told apart.
  if (flags.history.points == 0) flags.history.points = 2 * args.width;
  flags.history.names = {flags.metric};
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto history = FetchCurve(**api, flags, options);
  if (!history.ok()) return Complain(history.status());
  std::vector<Series> series = {TrainSeries(*history, flags.metric)};
  if (flags.metric == "loss") {
    Series validation = ValidationSeries(*history);
    if (!validation.x.empty()) series.push_back(std::move(validation));
  }
  const std::string text = Plot(series, args);
  if (!text.empty()) return PrintText(text);
  if (history->steps_size() > 0 && series[0].x.empty())
    return Complain(base::NotFound("job {} has no metric {}", flags.history.job, flags.metric));
  std::fprintf(stderr, "no steps to draw yet\n");
  return kExitOk;
}

}  // namespace

void AddPlot(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "plot", "Draw a curve of a job in the terminal: loss (with the validation loss) or a metric");
  auto flags = std::make_shared<PlotFlags>();
  (void)AddHistoryFlags(command, &flags->history);
  command->add_option("metric", flags->metric, "loss, grad_norm, tokens_per_second, ...")
      ->capture_default_str();
  command
      ->add_option("--attempt", flags->attempt,
                   "Of a job that was submitted again: this attempt alone, 1 the first")
      ->check(CLI::PositiveNumber);
  command->add_flag("--ascii", flags->ascii, "Without Unicode (the default outside UTF-8 locales)");
  command->add_option("--width", flags->width, "Characters (default: the terminal's)")
      ->check(CLI::Range(30, 1000));
  command->add_option("--height", flags->height, "Lines (default: the terminal's)")
      ->check(CLI::Range(6, 200));
  command->callback([=] { *context.run = [=] { return RunPlot(*flags, *context.options); }; });
}

}  // namespace mt::client
