// One function for each note; "" where there is nothing to say.
#include "client/commands/submit_notes.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "client/commands/job_memory.h"
#include "client/commands/outlook.h"
#include "client/output/format.h"
#include "common/base/plain_text.h"
#include "common/spec/derived.h"
#include "common/spec/field_effects.h"
#include "common/spec/job_kind.h"
#include "common/spec/presets.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

std::string CheckpointNote(const v1::JobSpec& job) {
  const v1::Checkpoint& checkpoint = job.checkpoint();
  if (!spec::KindOf(job).saves) return "";
  if (checkpoint.directory() == "none")
    return "no checkpoints are saved (checkpoint.directory: none): what it trains is lost at its "
           "end";
  if (checkpoint.every_iters() > 0 || checkpoint.every() > 0) return "";
  return "no checkpoint is saved before the end (checkpoint.every_iters: 0): a fault loses all "
         "steps; "
         "--set checkpoint.every_iters=N saves every N";
}

std::string VocabularyNote(const v1::JobSpec& job) {
  const spec::Preset* preset = spec::FindPreset(job.model().preset());
  if (preset == nullptr || !job.model().has_vocab_size() ||
      preset->vocab_size == job.model().vocab_size())
    return "";
  v1::Model whole = job.model();
  whole.set_vocab_size(preset->vocab_size);
  const auto count = [](const v1::Model& model) {
    return FormatRate(static_cast<double>(spec::ParameterCount(model)));
  };
  return fmt::format(
      "preset {}: the tokenizer has {} tokens, not {}, so the model has {} parameters, "
      "not {}",
      preset->name, job.model().vocab_size(), preset->vocab_size, count(job.model()), count(whole));
}

// The most that one node has for ranks of the kind.
int64_t LargestNode(const v1::ListNodesResponse& nodes, bool gpu) {
  int64_t most = 0;
  for (const v1::Node& node : nodes.nodes()) {
    int64_t bytes = gpu ? 0 : node.memory_bytes();
    for (const v1::Slot& slot : node.slots()) {
      if (gpu && slot.device() == v1::GPU) bytes += slot.gpu().memory_bytes();
    }
    most = std::max(most, bytes);
  }
  return most;
}

std::string MemoryNote(v1::JobSpec job, const v1::ListNodesResponse& nodes) {
  const bool gpu =
      job.placement().device() == v1::Placement::DEVICE_GPU ||
      (job.placement().device() != v1::Placement::DEVICE_CPU && LargestNode(nodes, true) > 0);
  if (gpu) job.mutable_placement()->set_device(v1::Placement::DEVICE_GPU);
  const auto stages = MemoryByStage(&job);
  if (!stages.ok()) return "";
  const int64_t need = MemoryOfAll(job, *stages).total();
  const int64_t have = LargestNode(nodes, gpu);
  if (have == 0 || need <= have) return "";
  return fmt::format(
      "its {} rank{} keep {} in all, the largest node has {}: on one node it does not "
      "fit (mtctl explain memory shows what it is)",
      spec::WorldSize(job), spec::WorldSize(job) == 1 ? "" : "s", FormatBytes(need),
      FormatBytes(have));
}

// On a node of CPU slots the copy lies beside all that the ranks keep. It is said only where no
// placement has room: the ranks may be spread over all nodes.
std::string SaveCopyNote(v1::JobSpec job, const v1::ListNodesResponse& nodes) {
  if (!job.checkpoint().async_save() || job.checkpoint().directory() == "none") return "";
  const auto stages = MemoryByStage(&job);
  if (!stages.ok()) return "";
  const spec::RankMemory all = MemoryOfAll(job, *stages);
  const bool on_gpu = job.placement().device() != v1::Placement::DEVICE_CPU &&
                      (job.placement().device() == v1::Placement::DEVICE_GPU ||
                       LargestNode(nodes, /*gpu=*/true) > 0);
  const auto need = [&](const spec::RankMemory& memory) {
    return memory.save_copy + (on_gpu ? 0 : memory.total());
  };
  int64_t of_rank = 0;
  for (const spec::RankMemory& memory : *stages) of_rank = std::max(of_rank, need(memory));
  int64_t sum = 0;
  for (const v1::Node& node : nodes.nodes()) {
    if (node.memory_bytes() == 0) return "";  // not known
    sum += node.memory_bytes();
  }
  const int64_t largest = LargestNode(nodes, /*gpu=*/false);
  if (sum == 0 || (need(all) <= sum && of_rank <= largest)) return "";
  const bool one_rank = of_rank > largest;
  return fmt::format(
      "with the copies for checkpoint.async_save {} {} of host memory, {} {}: where a rank finds "
      "no room for its copy, saves hold up training for as long as they write",
      one_rank ? "a rank takes" : "the ranks take", FormatBytes(one_rank ? of_rank : need(all)),
      one_rank ? "the largest node has" : "all nodes have", FormatBytes(one_rank ? largest : sum));
}

// What the job before has told of other runs and, where another run begins, has saved itself.
v1::OtherRuns OtherRunsOf(const v1::JobSpec& job, const v1::Job& before, bool restart) {
  v1::OtherRuns others = before.run().other_runs();
  if (GoesOnWith(job, before, restart)) return others;
  int64_t saved = 0;
  for (const v1::CheckpointInfo& one : before.checkpoints()) {
    if (one.run() != before.run().id()) continue;
    ++saved;
    others.set_bytes(others.bytes() + one.bytes());
  }
  others.set_checkpoints(others.checkpoints() + saved);
  others.set_runs(others.runs() + (saved > 0 ? 1 : 0));
  return others;
}

std::string OtherRunsNote(const v1::JobSpec& job, const v1::Job& before, bool restart) {
  if (before.run().id().empty() || !SharesDirectory(job, before)) return "";
  const v1::OtherRuns others = OtherRunsOf(job, before, restart);
  if (others.checkpoints() == 0) return "";
  return fmt::format(
      "{} of other runs ({}) in its directory stay: mtctl checkpoint list {} tells whose, mtctl "
      "checkpoint delete {} --run ID removes a run's",
      others.checkpoints() == 1 ? "1 checkpoint"
                                : fmt::format("{} checkpoints", others.checkpoints()),
      FormatBytes(others.bytes()), job.name(), job.name());
}

}  // namespace

std::vector<std::string> SubmitNotes(const v1::JobSpec& job, const v1::ListNodesResponse* nodes,
                                     const v1::Job* before, bool restart) {
  std::vector<std::string> notes = {CheckpointNote(job), VocabularyNote(job)};
  if (nodes != nullptr) {
    notes.push_back(MemoryNote(job, *nodes));
    notes.push_back(SaveCopyNote(job, *nodes));
  }
  if (before != nullptr) notes.push_back(OtherRunsNote(job, *before, restart));
  std::erase(notes, "");
  for (std::string& line : spec::NoteLines(spec::FieldNotes(job))) notes.push_back(std::move(line));
  return notes;
}

std::optional<v1::Job> JobBefore(const v1::JobSpec& job, const Api& api,
                                 const GlobalOptions& options) {
  if (!IsTable(options.output) || job.name().empty()) return std::nullopt;
  v1::GetJobRequest request;
  request.mutable_job()->set_name(job.name());
  request.mutable_job()->set_namespace_(job.namespace_());
  request.mutable_job()->set_with_run(true);  // a submission that failed at once made nothing
  auto found = api.GetJob(request);
  if (!found.ok()) return std::nullopt;
  return *std::move(found);
}

void SaySubmitNotes(const SayArgs& args, const Api& api, const GlobalOptions& options) {
  if (!IsTable(options.output)) return;
  const auto nodes = api.ListNodes();
  for (const std::string& note :
       SubmitNotes(*args.job, nodes.ok() ? &*nodes : nullptr, args.before, args.restart))
    std::fprintf(stderr, "mtctl: note: %s\n", base::CleanLine(note).c_str());
  SayOutlook({.job = args.job,
              .before = args.before,
              .restart = args.restart,
              .passes = PassesHere(*args.job, args.data_root, options)});
}

void SayFieldNotes(const v1::JobSpec& job) {
  for (const std::string& line : spec::NoteLines(spec::FieldNotes(job)))
    std::fprintf(stderr, "mtctl: note: %s\n", base::CleanLine(line).c_str());
}

}  // namespace mt::client
