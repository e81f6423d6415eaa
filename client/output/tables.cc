// A header and a row function for each kind of item, kept side by side so that their columns agree.
#include "client/output/tables.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "client/output/format.h"
#include "common/control/epoch.h"
#include "common/spec/derived.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using Row = std::vector<std::string>;

Row With(Row row, bool wide, const Row& more) {
  if (wide) row.insert(row.end(), more.begin(), more.end());
  return row;
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string Loss(int64_t step, double loss) { return step > 0 ? fmt::format("{:.4f}", loss) : "-"; }

std::string Labels(const google::protobuf::Map<std::string, std::string>& labels) {
  std::vector<std::string> sorted;
  for (const auto& [key, value] : labels) sorted.push_back(fmt::format("{}={}", key, value));
  std::sort(sorted.begin(), sorted.end());
  std::string out;
  for (const std::string& label : sorted) out += (out.empty() ? "" : ",") + label;
  return OrDash(out);
}

// "1 of 2": slots of a kind that are free and all of them, with those that are out of order; "-"
// where the node has none.
std::string FreeText(const v1::Node& node, bool gpus) {
  int all = 0;
  int free = 0;
  int out_of_order = 0;
  for (const v1::Slot& slot : node.slots()) {
    if ((slot.device() == v1::GPU) != gpus) continue;
    ++all;
    free += slot.job_uid().empty() && slot.out_of_order().empty() ? 1 : 0;
    out_of_order += slot.out_of_order().empty() ? 0 : 1;
  }
  if (all == 0) return "-";
  return fmt::format("{} of {}{}", free, all,
                     out_of_order > 0 ? fmt::format(", {} out of order", out_of_order) : "");
}

// Why GPUs are not offered, and why slots are out of order, each reason once.
std::string Problems(const v1::Node& node) {
  std::string text = node.gpu_problem();
  std::set<std::string> told;
  for (const v1::Slot& slot : node.slots()) {
    if (slot.out_of_order().empty() || !told.insert(slot.out_of_order()).second) continue;
    text +=
        fmt::format("{}slot {}: {}", text.empty() ? "" : "; ", slot.index(), slot.out_of_order());
  }
  return OrDash(OneLine(text));
}

// "NVIDIA H200, 140.4 GiB", each model once. Faults are marked here and explained by `describe
// node`.
std::string GpuNames(const v1::Node& node, const Style& style) {
  std::set<std::string> kinds;
  for (const v1::Slot& slot : node.slots()) {
    if (slot.device() == v1::GPU)
      kinds.insert(slot.gpu().name() + ", " + FormatBytes(slot.gpu().memory_bytes()));
  }
  std::string text = fmt::format("{}", fmt::join(kinds, " + "));
  if (node.gpu_problem().empty()) return OrDash(text);
  return Paint(style, Tone::kBad, text.empty() ? "does not work" : text + " (not all work)");
}

// "READY"; a refused claim on the node's name is told of behind it.
std::string NodeStateText(const v1::Node& node, const Style& style) {
  const std::string state = v1::NodeState_Name(node.state()).substr(5);
  const std::string text = Paint(style, ToneOfState(state), state);
  return node.refused_claim().empty() ? text : text + Paint(style, Tone::kBad, ", claim refused");
}

}  // namespace

Row JobHeader(const TableArgs& args) {
  return With(
      {"NAME", "STATE", "STEP", "LOSS", "VALID", "TOK/S", "SLOTS",
       TimeHeader(args.style, "AGE", "CREATED"), "MESSAGE"},
      args.wide,
      {"UID", "NAMESPACE", "EPOCH", "PRIORITY", "CHECKPOINT", "TFLOP/S", "LAYOUT", "LABELS"});
}

Row JobRow(const v1::Job& job, const TableArgs& args) {
  const int64_t step = job.last_step().step();
  const std::string state = StateText(job);
  return With(
      {job.name(), Paint(args.style, ToneOfState(state), state),
       fmt::format("{}/{}", step, job.total_steps() > 0 ? std::to_string(job.total_steps()) : "-"),
       Loss(step, job.last_step().loss()), Loss(job.last_eval().step(), job.last_eval().loss()),
       step > 0 ? FormatRate(job.last_step().tokens_per_second()) : "-",
       std::to_string(job.slots()), TimeCell(args.style, job.created_us()), OneLine(job.message())},
      args.wide,
      {job.uid(), job.namespace_(), control::EpochText(job.epoch()),
       std::to_string(job.spec().priority()),
       job.last_checkpoint().step() > 0 ? std::to_string(job.last_checkpoint().step()) : "-",
       step > 0 ? fmt::format("{:.3g}", job.last_step().tflops_per_slot() * job.slots()) : "-",
       OrDash(spec::LayoutText(job.spec())), Labels(job.spec().labels())});
}

Row NodeHeader(const TableArgs& args) {
  return With(
      {"NODE", "STATE", "GPUS FREE", "CPU FREE", "GPU", "CORES", "MEMORY", "HEARTBEAT", "VERSION"},
      args.wide, {"ADDRESS", "UID", "REGISTERED", "LABELS", "GPU UUIDS", "PROBLEMS"});
}

Row NodeRow(const v1::Node& node, const TableArgs& args) {
  std::string uuids;
  for (const v1::Slot& slot : node.slots()) {
    if (slot.device() != v1::GPU) continue;
    uuids += (uuids.empty() ? "" : ",") + ShortUuid(slot.gpu().uuid());
  }
  return With({node.name(), NodeStateText(node, args.style), FreeText(node, /*gpus=*/true),
               FreeText(node, /*gpus=*/false), GpuNames(node, args.style),
               std::to_string(node.cores()), FormatBytes(node.memory_bytes()),
               TimeCell(args.style, node.last_heartbeat_us()), node.version()},
              args.wide,
              {OrDash(node.address()), node.uid(), TimeCell(args.style, node.registered_us()),
               Labels(node.labels()), OrDash(uuids), Problems(node)});
}

std::string NodeNotes(const v1::ListNodesResponse& nodes) {
  std::string text;
  for (const v1::Node& node : nodes.nodes()) {
    std::map<std::string, int> slots;  // by why they are out of order
    for (const v1::Slot& slot : node.slots()) {
      if (!slot.out_of_order().empty()) ++slots[slot.out_of_order()];
    }
    for (const auto& [why, count] : slots) {
      text += fmt::format("{}: {} slot{} out of order: {}\n", node.name(), count,
                          count == 1 ? "" : "s", OneLine(why));
    }
  }
  return text;
}

Row OrphanHeader(const TableArgs& args) {
  return With({"JOB", "UID", "EPOCH", "RANKS", "NODES", "WHY NOT ADOPTED"}, args.wide, {});
}

Row OrphanRow(const v1::Orphan& orphan, const TableArgs& args) {
  std::string nodes;
  for (const std::string& node : orphan.nodes()) nodes += (nodes.empty() ? "" : ",") + node;
  return With({OrDash(orphan.job_name()), orphan.job_uid(), control::EpochText(orphan.epoch()),
               fmt::format("{} of {}", orphan.ranks(), orphan.world_size()), nodes,
               OrDash(OneLine(orphan.why()))},
              args.wide, {});
}

Row CheckpointHeader(const TableArgs& args) {
  return With(
      {"STEP", "EPOCH", "BYTES", "SECONDS", TimeHeader(args.style, "AGE", "SAVED"), "TAG", "PATH"},
      args.wide, {"TOKENS", "SAMPLES", "STALL", "SKIPPED", "RUN", "DIGEST", "META"});
}

Row CheckpointRow(const v1::CheckpointInfo& checkpoint, const TableArgs& args) {
  return With({std::to_string(checkpoint.step()), std::to_string(checkpoint.epoch()),
               FormatBytes(checkpoint.bytes()), fmt::format("{:.2f}", checkpoint.seconds()),
               TimeCell(args.style, checkpoint.time_us()), OrDash(checkpoint.label().tag()),
               checkpoint.path()},
              args.wide,
              {std::to_string(checkpoint.tokens()), std::to_string(checkpoint.consumed_samples()),
               fmt::format("{:.2f}", checkpoint.stall_seconds()),
               std::to_string(checkpoint.skipped()), OrDash(checkpoint.run()),
               OrDash(checkpoint.digest()), OneLine(Labels(checkpoint.label().meta()))});
}

std::string OperationStateText(const v1::Operation& operation) {
  if (operation.done()) return operation.has_error() ? "failed" : "done";
  return operation.progress().empty() ? "under way" : operation.progress();
}

Row OperationHeader(const TableArgs& args) {
  return With({"OPERATION", "VERB", "JOB", "STATE", TimeHeader(args.style, "AGE", "CREATED"),
               "TOOK", "RESULT"},
              args.wide, {"ACTOR", "REASON", "WORD STEP", "STEP", "REQUEST"});
}

Row OperationRow(const v1::Operation& operation, const TableArgs& args) {
  const std::string state = OneLine(OperationStateText(operation));
  const double took = static_cast<double>(operation.finished_us() - operation.created_us()) / 1e6;
  const std::string verb =
      operation.mode().empty() ? operation.verb() : operation.verb() + " --" + operation.mode();
  return With(
      {operation.name(), verb, OrDash(operation.job()),
       Paint(args.style, ToneOfState(state), state), TimeCell(args.style, operation.created_us()),
       operation.done() ? fmt::format("{:.2f}s", std::max(0.0, took)) : "-",
       OneLine(operation.has_error() ? operation.error().message() : operation.result())},
      args.wide,
      {OrDash(operation.actor()), OrDash(operation.reason()), std::to_string(operation.word_step()),
       std::to_string(operation.step()), operation.request_id()});
}

Row EventHeader(const TableArgs& args) {
  return With({"SEQ", TimeHeader(args.style, "AGE", "TIME"), "JOB", "TYPE", "MESSAGE"}, args.wide,
              {"NODE", "STEP", "CAUSE", "ACTOR", "REASON", "OPERATION"});
}

Row EventRow(const v1::Event& event, const TableArgs& args) {
  std::string message = OneLine(event.message());
  if (event.from() != event.to() && message.empty())
    message = v1::JobState_Name(event.from()) + " -> " + v1::JobState_Name(event.to());
  Tone tone = Tone::kPlain;
  if (event.cause() != v1::CAUSE_UNSPECIFIED || event.to() == v1::FAILED) tone = Tone::kBad;
  const std::string of = !event.job().empty() ? event.job() : event.node();
  return With({std::to_string(event.seq()), TimeCell(args.style, event.time_us()), OrDash(of),
               Paint(args.style, tone, event.type()), message},
              args.wide,
              {OrDash(event.node()), event.step() > 0 ? std::to_string(event.step()) : "-",
               event.cause() == v1::CAUSE_UNSPECIFIED ? "-" : v1::Cause_Name(event.cause()),
               OrDash(event.actor()), OrDash(event.reason()), OrDash(event.operation())});
}

std::string EventLine(const v1::Event& event, const TableArgs& args) {
  Row row = EventRow(event, args);
  // A relative time would be wrong a minute later.
  if (args.style.time == TimeFormat::kRelative)
    row[1] = TimeCell({.time = TimeFormat::kIso}, event.time_us());
  std::string line;
  for (const std::string& cell : row) line += (line.empty() ? "" : "  ") + OneLine(cell);
  if (!args.wide && !event.actor().empty()) line += "  (by " + OneLine(event.actor()) + ")";
  return line;
}

std::vector<std::string> JobNames(const v1::ListJobsResponse& jobs,
                                  const std::string& job_namespace) {
  std::set<std::string> seen;
  std::vector<std::string> names;
  for (const v1::Job& job : jobs.jobs()) {
    const bool here = job.namespace_() == job_namespace || job.namespace_().empty();
    names.push_back(here && seen.insert(job.name()).second ? job.name() : job.uid());
  }
  return names;
}

}  // namespace mt::client
