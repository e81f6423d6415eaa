// `mtctl checkpoint diff`: whether two checkpoints hold the same state, and where not.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "client/commands/byte_progress.h"
#include "client/commands/checkpoint.h"
#include "client/commands/checkpoint_place.h"
#include "client/output/format.h"
#include "client/session/session.h"
#include "common/base/plain_text.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/inspect/diff.h"

namespace mt::client {
namespace {

using checkpoint::DiffReport;
using checkpoint::FieldDifference;
using checkpoint::TensorDifference;
using nlohmann::ordered_json;

struct DiffFlags {
  std::string a, b;
  int64_t limit = 10;
};

std::string_view KindText(FieldDifference::Kind kind) {
  switch (kind) {
    case FieldDifference::Kind::kNumber:
      return "number";
    case FieldDifference::Kind::kFact:
      return "fact";
    case FieldDifference::Kind::kSpec:
      return "job";
    case FieldDifference::Kind::kSave:
      return "save";
  }
  return "";
}

std::string IndexText(const TensorDifference& one) {
  return fmt::format("[{}]", fmt::join(one.index, ", "));
}

std::string TensorTable(const DiffReport& report, int64_t limit) {
  Rows rows = {{"TENSOR", "DIFFER", "OF", "LARGEST", "AT", "FIRST", "SECOND", "RELATIVE NORM"}};
  for (const TensorDifference& one : report.tensors) {
    if (std::ssize(rows) > limit) break;
    const std::string name = base::CleanLine(one.key);
    if (one.num_elements == 0) {
      rows.push_back({name, one.why});
      continue;
    }
    rows.push_back({name, std::to_string(one.num_different), std::to_string(one.num_elements),
                    fmt::format("{:.3e}", one.largest), IndexText(one),
                    fmt::format("{}", one.value_a), fmt::format("{}", one.value_b),
                    fmt::format("{:.3e}", one.relative_norm)});
    if (!one.why.empty()) rows.back().push_back(one.why);
  }
  for (std::vector<std::string>& row : rows) row.resize(9);
  std::string text = fmt::format("{} of {} tensors differ\n{}", report.tensors.size(),
                                 report.num_tensors, Table(rows));
  const int64_t more = std::ssize(report.tensors) - limit;
  if (more > 0) text += fmt::format("... and {} more (--limit)\n", more);
  return text;
}

std::string ShortText(const std::string& value) {
  constexpr size_t kWidest = 60;
  if (value.empty()) return "-";
  return value.size() > kWidest ? fmt::format("({} bytes)", value.size()) : base::CleanLine(value);
}

std::string FieldTable(const DiffReport& report, int64_t limit) {
  Rows rows = {{"OF", "NAME", "FIRST", "SECOND"}};
  for (const FieldDifference& one : report.fields) {
    if (std::ssize(rows) > limit) break;
    rows.push_back({std::string(KindText(one.kind)), base::CleanLine(one.name), ShortText(one.a),
                    ShortText(one.b)});
  }
  std::string text = Table(rows);
  const int64_t more = std::ssize(report.fields) - limit;
  if (more > 0) text += fmt::format("... and {} more (--limit)\n", more);
  return text;
}

std::string DiffText(const DiffReport& report, int64_t limit) {
  std::string text;
  if (!report.tensors.empty()) text += TensorTable(report, limit);
  if (!report.fields.empty()) text += FieldTable(report, limit);
  return text + fmt::format("{}: {} tensors, {} elements\n",
                            report.same_state ? "the same state" : "different", report.num_tensors,
                            report.num_elements);
}

ordered_json DiffTree(const DiffReport& report, int64_t limit) {
  ordered_json tree = {
      {"same_state", report.same_state},    {"tensors", report.num_tensors},
      {"elements", report.num_elements},    {"different_tensors", report.tensors.size()},
      {"different", ordered_json::array()}, {"fields", ordered_json::array()}};
  for (const TensorDifference& one : report.tensors) {
    if (std::ssize(tree["different"]) >= limit) break;
    tree["different"].push_back({{"tensor", one.key},
                                 {"why", one.why},
                                 {"elements", one.num_elements},
                                 {"different_elements", one.num_different},
                                 {"largest", RealTree(one.largest)},
                                 {"index", one.index},
                                 {"first", RealTree(one.value_a)},
                                 {"second", RealTree(one.value_b)},
                                 {"relative_norm", RealTree(one.relative_norm)}});
  }
  for (const FieldDifference& one : report.fields) {
    tree["fields"].push_back(
        {{"of", KindText(one.kind)}, {"name", one.name}, {"first", one.a}, {"second", one.b}});
  }
  return tree;
}

ExitCode RunDiff(const DiffFlags& flags, const GlobalOptions& options) {
  const auto a = ResolveCheckpoint(flags.a, options);
  if (!a.ok()) return Complain(a.status());
  const auto b = ResolveCheckpoint(flags.b, options);
  if (!b.ok()) return Complain(b.status());
  BytesLine line("comparing");
  const auto report =
      checkpoint::Diff({.a = a->place,
                        .b = b->place,
                        .threads = checkpoint::AllCores(),
                        .progress = [&](int64_t done, int64_t total) { line.Show(done, total); }});
  line.Clear();
  if (!report.ok()) return Complain(report.status());
  const ExitCode printed = PrintText(
      IsTable(options.output) ? DiffText(*report, flags.limit)
                              : RenderTree(DiffTree(*report, flags.limit), options.output));
  return report->same_state ? printed : kExitError;
}

}  // namespace

void AddCheckpointDiff(CLI::App* checkpoint, const CommandContext& context) {
  CLI::App* diff = checkpoint->add_subcommand(
      "diff",
      "Whether two checkpoints hold the same state, whatever saved them (exit code 0 or 1)");
  auto flags = std::make_shared<DiffFlags>();
  diff->add_option("first", flags->a, kCheckpointHelp)->required();
  diff->add_option("second", flags->b, "The other one")->required();
  diff->add_option("--limit", flags->limit, "Tensors and fields to name")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  diff->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunDiff(*flags, *options); };
  });
}

}  // namespace mt::client
