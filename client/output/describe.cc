// One function for each part of the description, in the order in which they are printed.
#include "client/output/describe.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "client/output/activity_text.h"
#include "client/output/description.h"
#include "client/output/event_digest.h"
#include "client/output/format.h"
#include "client/output/metric_text.h"
#include "common/base/clock.h"
#include "common/base/plain_text.h"
#include "common/control/epoch.h"
#include "common/layout/mesh.h"
#include "common/report/bench_text.h"
#include "common/report/stall_text.h"
#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "common/spec/print.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/metric.pb.h"

namespace mt::client {
namespace {

constexpr size_t kErrorsShown = 5;
constexpr size_t kEventsShown = 10;

// The mesh of the job's ranks; nullopt where layout and number of ranks disagree.
std::optional<layout::Mesh> MeshOf(const v1::Job& job) {
  const v1::Parallel& parallel = job.spec().parallel();
  for (const int64_t size :
       {parallel.tensor(), parallel.context(), parallel.data(), parallel.pipeline()}) {
    if (size < 1 || size > job.ranks_size()) return std::nullopt;
  }
  const auto mesh = layout::Mesh::Create(spec::MeshSizesOf(job.spec()));
  if (!mesh.ok() || mesh->world_size() != job.ranks_size()) return std::nullopt;
  return *mesh;
}

// The rank's coordinate on the axis, or "-" where there is no mesh.
std::string AxisText(const std::optional<layout::Mesh>& mesh, int rank,
                     int layout::Coordinates::*axis) {
  if (!mesh || rank < 0 || rank >= mesh->world_size()) return "-";
  return std::to_string(mesh->CoordinatesOf(rank).*axis);
}

std::string RankTable(const v1::Job& job) {
  std::vector<std::vector<std::string>> rows = {
      {"RANK", "TP", "PP", "DP", "NODE", "SLOT", "GPU", "STATE", "PID", "EXIT"}};
  const std::optional<layout::Mesh> mesh = MeshOf(job);
  for (const v1::RankStatus& rank : job.ranks()) {
    std::string exit = "-";
    if (rank.exited()) {
      exit = rank.exit_unknown()       ? "unknown"
             : rank.exit_signal() != 0 ? fmt::format("signal {}", rank.exit_signal())
                                       : fmt::format("code {}", rank.exit_code());
    }
    const auto axis = [&](int layout::Coordinates::*member) {
      return AxisText(mesh, rank.rank(), member);
    };
    rows.push_back({std::to_string(rank.rank()), axis(&layout::Coordinates::tp),
                    axis(&layout::Coordinates::pp), axis(&layout::Coordinates::dp), rank.node(),
                    std::to_string(rank.slot()), ShortUuid(rank.gpu()),
                    v1::RankState_Name(rank.state()), std::to_string(rank.pid()), exit});
  }
  return Indent(Table(rows));
}

// The ranks without progress, each with the position of its device.
std::string StallLines(const v1::Job& job, int64_t now_us) {
  std::string lines;
  for (const v1::RankStatus& rank : job.ranks()) {
    if (!rank.has_stall()) continue;
    lines += report::StalledRankText(rank, spec::RankPlaceText(job.spec(), rank.rank()), now_us);
    lines += "\n";
  }
  return Indent(lines);
}

// The metrics of the last step, those with the same label on one line.
void AddMetrics(const v1::Job& job, Description* out) {
  std::string label, line;
  for (const report::StepMetric* metric : MetricsShown(MetricPlace::kDescribe)) {
    std::string text = MetricText(*metric, MetricPlace::kDescribe, job.last_step());
    if (text.empty()) continue;
    if (metric->declared().describe().with_first()) {
      const double first = metric->Value(job.first_step());
      text += fmt::format(" (first {})", MetricText(*metric, MetricPlace::kDescribe, first));
    }
    const std::string its_label = MetricLabel(*metric, MetricPlace::kDescribe);
    if (its_label == label) {
      line += ", " + text;
      continue;
    }
    if (!line.empty()) out->Add(label, line);
    label = its_label;
    line = text;
  }
  if (!line.empty()) out->Add(label, line);
}

// How much the run reads, what it still takes, and what its newest start has found changed.
void AddOutlook(const v1::Job& job, Description* out) {
  const v1::StartFacts& start = job.run().start();
  if (start.tokens() > 0) {
    std::string text = FormatTokens(start.tokens()) + " in the whole run";
    const int64_t read = job.last_step().consumed_samples() * job.spec().model().seq_length();
    if (read > 0 && read < start.tokens())
      text += fmt::format(", {} ahead", FormatTokens(start.tokens() - read));
    out->Add("Tokens", text);
  }
  const std::string passes = FormatPasses(start.train_passes(), start.valid_passes());
  if (!passes.empty()) out->Add("Data", passes + " in the whole run");
  const std::string left = HasEnded(job) ? "-" : TimeLeftText(job);
  if (left != "-") out->Add("Time left", left + " at the speed of the last step");
  if (!start.changed().empty()) {
    out->Add("Changed", fmt::format("since the checkpoint of step {}: {}", job.resumed_from_step(),
                                    fmt::join(start.changed(), "; ")));
  }
}

// The last save of the run: the job's own, or what its newest start went on from. "" where there is
// none.
std::string CheckpointText(const v1::Job& job) {
  const bool gone_on_from = job.has_resumed_checkpoint();
  if (!gone_on_from && !job.has_last_checkpoint()) return "";
  const v1::CheckpointInfo& one = gone_on_from ? job.resumed_checkpoint() : job.last_checkpoint();
  std::string text = fmt::format("step {}", one.step());
  if (!one.path().empty()) text += fmt::format(", {} ({})", one.path(), FormatBytes(one.bytes()));
  return gone_on_from ? text + ", gone on from" : text;
}

void AddProgress(const v1::Job& job, Description* out) {
  const v1::StepRecord& step = job.last_step();
  if (step.step() > 0) {
    out->Add("Step", fmt::format("{} of {}", step.step(), job.total_steps()));
    AddMetrics(job, out);
  }
  AddOutlook(job, out);
  if (job.has_bench()) out->Add("Benchmark", report::BenchLine(job.bench()));
  if (job.has_last_eval()) {
    out->Add("Validation loss",
             fmt::format("{:.6f} at step {}{}{}", job.last_eval().loss(), job.last_eval().step(),
                         job.last_eval().final() ? ", whole split" : "",
                         LossUnitsText(job.last_eval())));
  }
  if (job.resumed_from_step() > 0)
    out->Add("Resumed from", fmt::format("step {}", job.resumed_from_step()));
  const std::string checkpoint = CheckpointText(job);
  if (!checkpoint.empty()) out->Add("Checkpoint", checkpoint);
  if (!job.last_checkpoint_error().empty())
    out->Add("Last save failed", job.last_checkpoint_error());
  const v1::SecondCopy& copy = job.second_copy();
  if (copy.step() > 0) {
    out->Add("Second copy",
             fmt::format("step {} in {}", copy.step(), job.spec().checkpoint().second()));
  }
  if (!copy.error().empty()) out->Add("Last copy failed", copy.error());
}

// "7d9f..., began with load 1200 from step 1200 of run 0c6f...".
std::string RunText(const v1::Run& run) {
  std::string text = run.id();
  if (!run.restart().empty()) text += ", begun on purpose";
  if (!run.beginning().empty()) text += ", began with " + run.beginning();
  if (!run.parent().empty()) return text + ", in a copy of run " + run.parent();
  if (run.from_digest().empty()) return text;
  text += fmt::format(", from step {}", run.from_step());
  return run.from_run().empty() ? text : text + " of run " + run.from_run();
}

// "3 checkpoints (1.2 GiB) of 2 other runs; ...".
std::string OtherRunsText(const v1::Job& job) {
  const v1::OtherRuns& others = job.run().other_runs();
  return fmt::format(
      "{} checkpoint{} ({}) of {} in its directory; mtctl checkpoint list {} tells which, mtctl "
      "checkpoint delete {} --run ID removes them",
      others.checkpoints(), others.checkpoints() == 1 ? "" : "s", FormatBytes(others.bytes()),
      others.runs() == 1 ? "1 other run" : fmt::format("{} other runs", others.runs()), job.name(),
      job.name());
}

// "1 (infrastructure 1 of 10 in an hour, user 0 of 3, ...); the last one after NETWORK: ...".
std::string RestartsText(const v1::Job& job, const Style& style) {
  const v1::Resilience::MaxRestarts& limits = job.spec().resilience().max_restarts();
  const v1::Restarts& spent = job.restarts();
  if (limits.user() + limits.hang() + limits.storage() + limits.infra_per_hour() == 0)
    return "none: resilience.max_restarts are 0, a fault ends the job";
  constexpr int64_t kHourUs = 3'600'000'000;
  const auto in_hour = std::ranges::count_if(
      spent.infrastructure_us(), [&](int64_t time_us) { return style.now_us - time_us < kHourUs; });
  std::string text = fmt::format(
      "{} (infrastructure {} of {} in an hour, user {} of {}, hang {} of {}, storage {} "
      "of {}; without progress {} of {} in a row)",
      spent.user() + spent.hang() + spent.storage() + spent.infrastructure(), in_hour,
      limits.infra_per_hour(), spent.user(), limits.user(), spent.hang(), limits.hang(),
      spent.storage(), limits.storage(), spent.no_progress(), limits.no_progress());
  if (!spent.message().empty()) {
    text +=
        fmt::format("; the last one {} behind step {}: {}: {}", TimeText(style, spent.time_us()),
                    spent.step(), v1::Cause_Name(spent.cause()), spent.message());
  }
  return text;
}

void AddIdentity(const v1::Job& job, const Style& style, Description* out) {
  out->Add("Name", job.name());
  out->Add("Namespace", job.namespace_());
  out->Add("UID", job.uid());
  if (!job.run().id().empty()) out->Add("Run", RunText(job.run()));
  if (job.run().has_other_runs()) out->Add("Other runs", OtherRunsText(job));
  if (job.attempt() > 0) out->Add("Attempt", fmt::format("{} of the run", job.attempt()));
  if (spec::KindOf(job.spec()).has_steps) out->Add("Restarts", RestartsText(job, style));
  out->Add("State", Paint(style, ToneOfState(StateText(job)), StateText(job)));
  if (!job.message().empty())
    out->Add(job.state() == v1::QUEUED ? "Why pending" : "Message", job.message());
  if (job.cause() != v1::CAUSE_UNSPECIFIED) out->Add("Cause", v1::Cause_Name(job.cause()));
  if (job.state() == v1::FAILED && job.failed_rank() >= 0)
    out->Add("Failed rank", std::to_string(job.failed_rank()));
  for (const v1::Condition& c : job.conditions())
    out->Add("Condition",
             fmt::format("{}: {}, since {}", c.type(), c.message(), TimeText(style, c.since_us())));
  out->Add("Epoch", control::EpochText(job.epoch()));
  const std::string doing = ActivityText(job, 0);
  if (!doing.empty()) out->Add("Doing", doing);
  if (job.goal() != v1::GOAL_UNSPECIFIED) out->Add("Goal", v1::Goal_Name(job.goal()).substr(5));
  const std::pair<const char*, int64_t> times[] = {{"Created", job.created_us()},
                                                   {"Started", job.started_us()},
                                                   {"Finished", job.finished_us()},
                                                   {"Deadline", job.deadline_us()}};
  for (const auto& [key, micros] : times) {
    if (micros != 0)
      out->Add(key, micros > style.now_us ? base::FormatUtc(micros) : TimeText(style, micros));
  }
  if (!job.etag().empty()) out->Add("Etag", job.etag());
}

template <class Items, class Header, class RowOf>
void AddTable(const char* title, const Items& items, Header header, RowOf row,
              const TableArgs& args, Description* out) {
  if (items.empty()) return;
  Rows rows = {header(args)};
  for (const auto& item : items) rows.push_back(row(item, args));
  out->Raw(std::string(title) + ":\n" + Indent(Table(rows)));
}

}  // namespace

std::string DescribeJob(const JobFacts& facts, const TableArgs& args) {
  const v1::Job& job = *facts.job;
  Description out;
  AddIdentity(job, args.style, &out);
  if (job.parameters() > 0)
    out.Add("Parameters", FormatRate(static_cast<double>(job.parameters())));
  const std::string layout = spec::LayoutText(job.spec());
  if (!layout.empty()) out.Add("Layout", layout);
  AddProgress(job, &out);
  if (!job.ranks().empty()) out.Raw("Ranks:\n" + RankTable(job));
  const std::string stalled = StallLines(job, args.style.now_us);
  if (!stalled.empty()) out.Raw("Without progress:\n" + stalled);
  if (!job.last_log_lines().empty()) {
    out.Raw("Last log lines of the failed rank:\n");
    for (const std::string& line : job.last_log_lines())
      out.Raw("  | " + base::CleanLine(line) + "\n");
  }
  AddTable("Checkpoints", job.checkpoints(), CheckpointHeader, CheckpointRow, args, &out);
  AddTable("Operations", facts.operations->operations(), OperationHeader, OperationRow, args, &out);
  const std::string errors =
      EventDigest(*facts.events, {.errors_only = true, .lines = kErrorsShown}, args);
  if (!errors.empty()) out.Raw("Last errors:\n" + errors);
  const std::string events = EventDigest(*facts.events, {.lines = kEventsShown}, args);
  if (!events.empty()) out.Raw("Events:\n" + events);
  if (facts.spec) out.Raw("Spec:\n" + Indent(spec::ToYaml(job.spec())));
  return out.text();
}

}  // namespace mt::client
