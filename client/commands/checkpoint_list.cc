// `mtctl checkpoint list` and `mtctl checkpoint inspect`: what is in a directory of checkpoints,
// and in one of them.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "client/commands/checkpoint.h"
#include "client/commands/checkpoint_place.h"
#include "client/output/format.h"
#include "client/session/session.h"
#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/run_list.h"
#include "worker/checkpoint/format/verified.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/checkpoint/inspect/listing.h"
#include "worker/checkpoint/inspect/run_totals.h"

namespace mt::client {
namespace {

using checkpoint::ListedFolder;
using nlohmann::ordered_json;

std::string CleanOrDash(const std::string& text) {
  return text.empty() ? "-" : base::CleanLine(text);
}

std::string PinText(const std::optional<checkpoint::Pin>& pin) {
  if (!pin) return "-";
  return pin->reason.empty() ? "yes" : base::CleanLine(pin->reason);
}

std::string LossText(const std::optional<checkpoint::Evaluation>& evaluation) {
  if (!evaluation) return "-";
  const std::string& kind = evaluation->measure.kind;
  std::string on;
  if (kind == checkpoint::kSplit) on = " on the whole split";
  if (kind == checkpoint::kFixed) on = ", fixed windows";
  if (kind == checkpoint::kRolling) on = ", rolling windows";
  if (evaluation->bits_per_byte)
    on += fmt::format(", {:.4f} bits per byte", *evaluation->bits_per_byte);
  return fmt::format("{:.4f}{}", evaluation->loss, on);
}

using FoundLabel = StatusOr<checkpoint::Label>;

std::string TagText(const FoundLabel& label) {
  if (absl::IsNotFound(label.status())) return "-";
  if (!label.ok()) return "unreadable";
  return label->tag.empty() ? "(meta only)" : base::CleanLine(label->tag);
}

ordered_json LabelTree(const FoundLabel& label) {
  if (absl::IsNotFound(label.status())) return nullptr;
  if (!label.ok()) return {{"fault", base::Message(label.status())}};
  return {{"tag", label->tag}, {"meta", label->meta}};
}

std::string FenceText(const checkpoint::Fence& fence) {
  const std::string who = fence.job_uid.empty()
                              ? "a standalone run"
                              : fmt::format("job {} (epoch {})", fence.job_uid, fence.epoch);
  return base::CleanLine(fmt::format("{}, rank 0 on host {}", who, fence.holder.host));
}

Rows TableOf(const std::vector<ListedFolder>& folders) {
  Rows rows = {
      {"FOLDER", "JOB", "CREATED", "SIZE", "LAYOUT", "RANKS", "LOSS", "PINNED", "TAG", "STATE"}};
  for (const ListedFolder& one : folders) {
    rows.push_back({one.name, CleanOrDash(one.job_name), CleanOrDash(one.created),
                    FormatBytes(one.bytes), CleanOrDash(checkpoint::LayoutText(one.summary)),
                    one.world_size > 0 ? std::to_string(one.world_size) : "-",
                    one.evaluation ? fmt::format("{:.4f}", one.evaluation->loss) : "-",
                    PinText(one.pin), TagText(one.label),
                    one.newest          ? "newest"
                    : one.fault.empty() ? "complete"
                                        : base::CleanLine("no checkpoint: " + one.fault)});
  }
  return rows;
}

ordered_json LayoutTree(const checkpoint::Summary& summary) {
  return {{"tensor", summary.tensor_parallel},
          {"pipeline", summary.pipeline_parallel},
          {"data", summary.data_parallel}};
}

ordered_json PinTree(const std::optional<checkpoint::Pin>& pin) {
  if (!pin) return nullptr;
  return {{"reason", pin->reason}, {"made", pin->made}};
}

// null: not known.
ordered_json MeasureTree(const checkpoint::Measure& measure) {
  if (measure.kind.empty()) return nullptr;
  return {{"kind", measure.kind}, {"samples", measure.samples}, {"data", measure.data}};
}

ordered_json EvaluationTree(const std::optional<checkpoint::Evaluation>& evaluation) {
  if (!evaluation) return nullptr;
  ordered_json tree = {{"split", evaluation->split},
                       {"step", evaluation->step},
                       {"loss", RealTree(evaluation->loss)},
                       {"tokens", evaluation->tokens},
                       {"measure", MeasureTree(evaluation->measure)}};
  if (evaluation->bits_per_byte) tree["bits_per_byte"] = RealTree(*evaluation->bits_per_byte);
  return tree;
}

ordered_json TreeOf(const std::string& directory, const ListedFolder& one) {
  return {{"folder", base::JoinPath(directory, one.name)},
          {"step", one.id.step},
          {"epoch", one.id.epoch},
          {"complete", one.fault.empty()},
          {"newest", one.newest},
          {"fault", one.fault},
          {"job", one.job_name},
          {"job_uid", one.job_uid},
          {"run", one.run},
          {"created", one.created},
          {"bytes", one.bytes},
          {"world_size", one.world_size},
          {"layout", LayoutTree(one.summary)},
          {"evaluation", EvaluationTree(one.evaluation)},
          {"pin", PinTree(one.pin)},
          {"label", LabelTree(one.label)}};
}

// The runs of a directory; where one checkpoint is listed, no others are told.
struct RunsHere {
  std::string current;
  std::vector<checkpoint::RunTotal> others;
};

RunsHere RunsOf(const checkpoint::Place& place, const checkpoint::Listing& listing) {
  RunsHere runs{.current = CurrentRun(listing), .others = {}};
  if (!place.id) runs.others = OtherRuns(listing, runs.current);
  return runs;
}

// What other runs than that of the directory have there; "" where that is nothing.
std::string OtherRunsText(const std::string& directory, const RunsHere& runs) {
  std::string text;
  bool named = false;
  for (const checkpoint::RunTotal& one : runs.others) {
    text += fmt::format("{}: {} checkpoint{}, {}\n",
                        one.run.empty() ? "of a run that is not known" : "of run " + one.run,
                        one.checkpoints, one.checkpoints == 1 ? "" : "s", FormatBytes(one.bytes));
    named = named || !one.run.empty();
  }
  if (!named) return text;
  return text + fmt::format("no run removes another's: mtctl checkpoint delete {} --run ID\n",
                            base::CleanLine(directory));
}

ordered_json ListTree(const std::string& directory, const checkpoint::Listing& listing,
                      const RunsHere& runs) {
  ordered_json tree = {{"directory", directory}, {"held_by", nullptr}};
  if (const std::optional<checkpoint::Fence>& fence = listing.fence; fence.has_value()) {
    tree["held_by"] = {
        {"job_uid", fence->job_uid}, {"epoch", fence->epoch}, {"host", fence->holder.host}};
  }
  tree["runs_fault"] = listing.runs.ok() ? "" : base::Message(listing.runs.status());
  tree["run"] = runs.current;
  tree["other_runs"] = ordered_json::array();
  for (const auto& [run, checkpoints, bytes] : runs.others)
    tree["other_runs"].push_back({{"run", run}, {"checkpoints", checkpoints}, {"bytes", bytes}});
  tree["checkpoints"] = ordered_json::array();
  for (const ListedFolder& one : listing.folders)
    tree["checkpoints"].push_back(TreeOf(directory, one));
  return tree;
}

ExitCode RunList(const std::string& path, const GlobalOptions& options) {
  const auto place = ResolvePlace(path, options);
  if (!place.ok()) return Complain(place.status());
  auto listing = checkpoint::ListDirectory(place->directory);
  if (!listing.ok()) return Complain(listing.status());
  const RunsHere runs = RunsOf(*place, *listing);
  std::vector<ListedFolder>& folders = listing->folders;
  if (place->id) {
    std::erase_if(folders, [&](const ListedFolder& one) {
      return one.id != *place->id || one.name.ends_with(".tmp");
    });
  }
  // The newest first; what is unfinished stays at the end.
  const auto unfinished = std::ranges::find_if(
      folders, [](const ListedFolder& one) { return one.name.ends_with(".tmp"); });
  std::reverse(folders.begin(), unfinished);
  if (options.output == OutputFormat::kName) {
    std::string names;
    for (const ListedFolder& one : folders)
      if (one.fault.empty()) names += base::JoinPath(place->directory, one.name) + "\n";
    return PrintText(names);
  }
  if (!IsTable(options.output)) {
    const ordered_json tree = ListTree(place->directory, *listing, runs);
    return PrintText(RenderTree(tree, options.output, "checkpoints"));
  }
  std::string text = folders.empty() ? "no checkpoints\n" : Table(TableOf(folders));
  if (const std::optional<checkpoint::Fence>& fence = listing->fence; fence.has_value())
    text += fmt::format("held by {}\n", FenceText(*fence));
  if (!listing->runs.ok()) text += base::CleanLine(base::Message(listing->runs.status())) + "\n";
  text += OtherRunsText(place->directory, runs);
  return PrintText(text);
}

// Everything that `inspect` prints.
struct Inspection {
  checkpoint::CheckpointPlace place;
  checkpoint::Manifest manifest;
  checkpoint::Summary summary;
  std::string run;  // its id; empty: not known
  int64_t bytes = 0;
  Rows found_rows;                                                // loss, pin, tag and meta
  std::vector<std::pair<std::string, ordered_json>> found_trees;  // evaluation, pin, label
};

ordered_json InspectionTree(const Inspection& one, bool tensors) {
  const checkpoint::Manifest& m = one.manifest;
  ordered_json tree = {{"folder", one.place.folder},
                       {"step", m.step},
                       {"epoch", m.epoch},
                       {"created", m.created},
                       {"job",
                        {{"uid", m.job_uid},
                         {"epoch", m.job_epoch},
                         {"name", m.job_name},
                         {"spec", nlohmann::json::parse(m.spec_json, nullptr, false)}}},
                       {"run", one.run},
                       {"parent", nullptr},
                       {"world_size", m.world_size},
                       {"layout", LayoutTree(one.summary)},
                       {"precision", one.summary.precision},
                       {"tokens", one.summary.tokens},
                       {"parameters", one.summary.parameters},
                       {"num_tensors", one.summary.num_tensors},
                       {"num_slices", one.summary.num_slices},
                       {"state_bytes", one.summary.state_bytes},
                       {"bytes", one.bytes},
                       {"integers", m.integers},
                       {"reals", ordered_json::object()},
                       {"facts", m.facts}};
  for (const auto& [name, found] : one.found_trees) tree[name] = found;
  for (const auto& [name, value] : m.reals) tree["reals"][name] = RealTree(value);
  if (m.parent_step >= 0) tree["parent"] = {{"step", m.parent_step}, {"epoch", m.parent_epoch}};
  if (!tensors) return tree;
  tree["tensors"] = ordered_json::array();
  for (const auto& [key, tensor] : m.tensors) {
    tree["tensors"].push_back({{"name", key},
                               {"dtype", tensor.dtype},
                               {"shape", tensor.shape},
                               {"slices", tensor.slices.size()}});
  }
  return tree;
}

// A fact on one line; what a table of tuning choices holds is of no use there.
std::string FactText(const std::string& fact) {
  constexpr size_t kWidest = 80;
  if (fact.size() > kWidest) return fmt::format("({} bytes)", fact.size());
  return CleanOrDash(fact);
}

// The tag, and a row for each entry of meta.
void AddLabelRows(const FoundLabel& read, Rows* rows) {
  rows->push_back({"tag", TagText(read)});
  if (absl::IsNotFound(read.status())) return;
  if (!read.ok()) {
    rows->back()[1] += ": " + base::CleanLine(base::Message(read.status()));
    return;
  }
  for (const auto& [key, value] : read->meta)
    rows->push_back({"meta " + base::CleanLine(key), base::CleanLine(value)});
}

// What lies beside the manifest.
void LookBeside(const std::string& folder, Inspection* one) {
  std::optional<checkpoint::Evaluation> evaluation;
  if (auto read = checkpoint::ReadEvaluation(folder); read.ok()) evaluation = *std::move(read);
  const std::optional<checkpoint::Pin> pin = checkpoint::ReadPin(folder);
  const FoundLabel label = checkpoint::ReadLabel(folder);
  const bool verified = checkpoint::IsVerified(folder);
  const std::string verified_at = checkpoint::VerifiedAt(folder);
  one->found_rows = {
      {"valid loss", LossText(evaluation)},
      {"pinned", PinText(pin)},
      {"verified", verified ? base::CleanLine(verified_at.empty() ? "yes" : verified_at) : "-"}};
  AddLabelRows(label, &one->found_rows);
  one->found_trees = {{"evaluation", EvaluationTree(evaluation)},
                      {"pin", PinTree(pin)},
                      {"verified", verified ? ordered_json(verified_at) : ordered_json(nullptr)},
                      {"label", LabelTree(label)}};
}

std::string InspectionText(const Inspection& one, bool tensors) {
  const checkpoint::Manifest& m = one.manifest;
  const checkpoint::Summary& s = one.summary;
  Rows rows = {
      {"checkpoint", one.place.folder},
      {"step", fmt::format("{}, directory epoch {}", m.step, m.epoch)},
      {"created", CleanOrDash(m.created)},
      {"job", fmt::format("{} ({})", CleanOrDash(m.job_name), CleanOrDash(m.job_uid))},
      {"run", CleanOrDash(one.run)},
      {"went on from", m.parent_step < 0 ? "nothing: a cold start"
                                         : checkpoint::FolderName({m.parent_step, m.parent_epoch})},
      {"saved by", fmt::format("{} rank{}, {}", m.world_size, m.world_size == 1 ? "" : "s",
                               CleanOrDash(checkpoint::LayoutText(s)))},
      {"precision", CleanOrDash(s.precision)},
      {"trained", fmt::format("{} samples, {} tokens", s.consumed_samples, s.tokens)},
      {"parameters", std::to_string(s.parameters)},
      {"tensors",
       fmt::format("{} in {} slices, {}", s.num_tensors, s.num_slices, FormatBytes(s.state_bytes))},
      {"on disk", FormatBytes(one.bytes)}};
  if (m.skipped_since_save > 0) {
    rows.push_back({"skipped", fmt::format("{} steps since the save before{}", m.skipped_since_save,
                                           m.spoiled ? "; it is spoiled" : "")});
  }
  rows.insert(rows.end(), one.found_rows.begin(), one.found_rows.end());
  for (const auto& [name, value] : m.integers)
    rows.push_back({base::CleanLine(name), std::to_string(value)});
  for (const auto& [name, value] : m.reals)
    rows.push_back({base::CleanLine(name), fmt::format("{}", value)});
  for (const auto& [name, fact] : m.facts) rows.push_back({base::CleanLine(name), FactText(fact)});
  std::string text = Table(rows);
  if (!tensors) return text;
  rows = {{"TENSOR", "TYPE", "SHAPE", "SLICES"}};
  for (const auto& [key, tensor] : m.tensors) {
    rows.push_back({base::CleanLine(key), tensor.dtype,
                    fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
                    std::to_string(tensor.slices.size())});
  }
  return text + "\n" + Table(rows);
}

ExitCode RunInspectCheckpoint(const std::string& path, bool tensors, const GlobalOptions& options) {
  Inspection one;
  const auto named = ResolveCheckpoint(path, options);
  if (!named.ok()) return Complain(named.status());
  const checkpoint::CheckpointPlace* const place = &named->place;
  one.place = *place;
  // Where slices lie is in the ranks' manifests, which are read where somebody asks.
  auto manifest = tensors ? checkpoint::ReadWholeManifest(place->directory, place->id)
                          : checkpoint::ReadManifest(place->directory, place->id);
  if (!manifest.ok()) return Complain(manifest.status());
  one.manifest = *std::move(manifest);
  one.summary = checkpoint::Summarize(one.manifest);
  const auto runs = checkpoint::ReadRuns(place->directory);
  one.run = runs.ok() ? checkpoint::RunOf(*runs, one.manifest) : one.manifest.run;
  one.bytes = checkpoint::FolderBytes(place->folder).value_or(0);
  LookBeside(place->folder, &one);
  if (IsTable(options.output)) return PrintText(InspectionText(one, tensors));
  if (options.output == OutputFormat::kName) return PrintText(place->folder + "\n");
  return PrintText(RenderTree(InspectionTree(one, tensors), options.output));
}

}  // namespace

void AddCheckpointList(CLI::App* checkpoint, const CommandContext& context) {
  CLI::App* list = checkpoint->add_subcommand(
      "list", "Checkpoints in a directory on this machine, and what is none and why");
  auto path = std::make_shared<std::string>();
  list->add_option("dir", *path, kDirectoryHelp)->required();
  list->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunList(*path, *options); };
  });
}

void AddCheckpointInspect(CLI::App* checkpoint, const CommandContext& context) {
  CLI::App* inspect =
      checkpoint->add_subcommand("inspect", "What a checkpoint's manifest tells of it");
  struct Args {
    std::string path;
    bool tensors = false;
  };
  auto args = std::make_shared<Args>();
  inspect->add_option("checkpoint", args->path, kCheckpointHelp)->required();
  inspect->add_flag("--tensors", args->tensors, "Its tensors, too");
  inspect->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunInspectCheckpoint(args->path, args->tensors, *options); };
  });
}

}  // namespace mt::client
