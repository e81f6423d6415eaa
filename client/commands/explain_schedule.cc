// `mtctl explain schedule`: a timeline of the pipeline stages with their idle times, their layers
// and the microbatches that each keeps in flight.
#include <cstdint>
#include <memory>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "client/commands/explain.h"
#include "client/commands/job_file.h"
#include "client/output/format.h"
#include "common/layout/layer_split.h"
#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "megatrain/v1/job.pb.h"
#include "worker/parallel/schedule/job_request.h"
#include "worker/parallel/schedule/print.h"
#include "worker/parallel/schedule/simulate.h"

namespace mt::client {
namespace {

using parallel::Schedule;
using parallel::Timeline;

constexpr int kDrawingWidth = 100;

struct ScheduleFlags {
  JobFileArgs file;
  int64_t microbatches = 0;
  int width = 0;
};

int WidthOf(const ScheduleFlags& flags) {
  if (flags.width > 0) return flags.width;
  winsize size{};
  const bool terminal = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return terminal ? size.ws_col : kDrawingWidth;
}

// The contents of a stage's chunks: "embedding, layers 0-5; layers 12-17, head".
std::string LayersText(const std::vector<layout::ModelChunk>& chunks) {
  std::string text;
  for (const layout::ModelChunk& chunk : chunks) {
    std::vector<std::string> parts;
    if (chunk.has_embedding) parts.emplace_back("embedding");
    if (chunk.num_layers == 1) parts.push_back(fmt::format("layer {}", chunk.first_layer));
    if (chunk.num_layers > 1) {
      parts.push_back(
          fmt::format("layers {}-{}", chunk.first_layer, chunk.first_layer + chunk.num_layers - 1));
    }
    if (chunk.has_head) parts.emplace_back("head");
    if (parts.empty()) parts.emplace_back("nothing");
    text += fmt::format("{}{}", text.empty() ? "" : "; ", fmt::join(parts, ", "));
  }
  return text;
}

std::string StageTable(const Schedule& schedule, const Timeline& timeline,
                       const layout::LayerSplit& split) {
  std::vector<std::vector<std::string>> rows = {{"STAGE", "SLOTS", "IDLE", "LAYERS"}};
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto s = static_cast<size_t>(stage);
    int64_t idle = timeline.end;
    for (const parallel::ScheduleSpan& span : timeline.actions[s]) idle -= span.end - span.begin;
    rows.push_back({fmt::format("{}", stage),
                    fmt::format("{}", fmt::join(schedule.slots[s], " + ")),
                    fmt::format("{:.1f} %", 100.0 * static_cast<double>(idle) /
                                                static_cast<double>(timeline.end)),
                    LayersText(split.OfStage(stage))});
  }
  return Table(rows);
}

// A number with its noun: "1 chunk", "2 chunks".
std::string Count(int64_t number, std::string_view what, std::string_view plural = "s") {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : plural);
}

std::string Headline(const v1::JobSpec& job, const Schedule& schedule,
                     const parallel::ScheduleCosts& costs) {
  return fmt::format(
      "{}: {} of {}, {} of {} per step and replica; a chunk's forward takes 1 tick, its backward "
      "{}, a transfer none\n",
      Name(schedule.kind), Count(schedule.stages, "stage"), Count(schedule.chunks, "chunk"),
      Count(schedule.microbatches, "microbatch", "es"),
      Count(job.training().micro_batch_size(), "sample"), costs.backward);
}

ExitCode RunExplainSchedule(const ScheduleFlags& flags, const GlobalOptions& options) {
  if (!IsTable(options.output)) {
    return Complain(
        base::InvalidArgument("explain schedule draws, and has no other format; the layout: "
                              "mtctl validate -f FILE -o json"),
        kExitUsage);
  }
  v1::JobSpec job;
  const ExitCode code = ReadJobFile(flags.file, options, &job);
  if (code != kExitOk) return code;
  if (!spec::KindOf(job).has_steps) {
    return Complain(base::InvalidArgument("a job of kind {} makes no steps, and has no schedule",
                                          spec::KindOf(job).name));
  }
  const int64_t microbatches =
      flags.microbatches > 0 ? flags.microbatches : spec::MicrobatchesPerStep(job);
  const auto schedule = parallel::GenerateSchedule(parallel::ScheduleRequestOf(job, microbatches));
  if (!schedule.ok()) return Complain(schedule.status());
  // A backward pass costs two forward passes, and a third one where it recomputes its layers.
  const bool again = job.training().recompute().mode() == v1::Training::Recompute::MODE_FULL;
  const parallel::ScheduleCosts costs{.forward = 1, .backward = again ? 3 : 2, .transfer = 0};
  const auto timeline = parallel::SimulateSchedule(*schedule, costs);
  if (!timeline.ok()) return Complain(timeline.status());
  return PrintText(
      Headline(job, *schedule, costs) +
      parallel::PrintSchedule(*schedule, *timeline, static_cast<size_t>(WidthOf(flags))) + "\n" +
      StageTable(*schedule, *timeline, spec::LayerSplitOf(job)));
}

}  // namespace

void AddExplainSchedule(CLI::App* explain, const CommandContext& context) {
  CLI::App* command = explain->add_subcommand(
      "schedule", "Draw what each pipeline stage of a job computes when, and its idle share");
  auto flags = std::make_shared<ScheduleFlags>();
  AddJobFileFlags(command, &flags->file);
  command
      ->add_option("--microbatches", flags->microbatches,
                   "Draw a step of so many (default: the job's)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--width", flags->width, "Characters (default: the terminal's)")
      ->check(CLI::Range(20, 100000));
  command->callback(
      [=] { *context.run = [=] { return RunExplainSchedule(*flags, *context.options); }; });
}

}  // namespace mt::client
