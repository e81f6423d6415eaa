// `mtctl explain memory`: planned memory of each pipeline stage's ranks by kind, from the formulas
// of common/spec/memory_formula.h.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/explain.h"
#include "client/commands/job_file.h"
#include "client/commands/job_memory.h"
#include "client/output/format.h"
#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {
namespace {

using nlohmann::ordered_json;
using spec::RankMemory;

// Which columns a job has beside those of all jobs.
struct MoreColumns {
  bool prompts = false, gathered = false, sums = false, copy = false;
};

MoreColumns MoreColumnsOf(const v1::JobSpec& job, const std::vector<RankMemory>& stages) {
  return {.prompts = spec::WritesTexts(job),
          .gathered = std::ranges::any_of(
              stages, [](const RankMemory& memory) { return memory.gathered_inputs > 0; }),
          .sums = std::ranges::any_of(
              stages, [](const RankMemory& memory) { return memory.tensor_sums > 0; }),
          .copy = job.checkpoint().async_save()};
}

std::vector<std::string> MemoryRow(const std::string& name, const RankMemory& memory,
                                   const MoreColumns& more) {
  std::vector<std::string> row = {name,
                                  FormatRate(static_cast<double>(memory.parameters)),
                                  FormatBytes(memory.weights),
                                  FormatBytes(memory.gradients),
                                  FormatBytes(memory.optimizer),
                                  FormatBytes(memory.activations)};
  if (more.prompts) row.push_back(FormatBytes(memory.prompts));
  row.push_back(FormatBytes(memory.total()));
  if (more.gathered) row.push_back(FormatBytes(memory.gathered_inputs));
  if (more.sums) row.push_back(FormatBytes(memory.tensor_sums));
  if (more.copy) row.push_back(FormatBytes(memory.save_copy));
  return row;
}

std::string MemoryTable(const v1::JobSpec& job, const std::vector<RankMemory>& stages) {
  std::vector<std::vector<std::string>> rows = {
      {"RANK OF STAGE", "PARAMETERS", "WEIGHTS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS"}};
  const MoreColumns more = MoreColumnsOf(job, stages);
  if (more.prompts) rows[0].emplace_back("TEXTS");
  rows[0].emplace_back("TOTAL");
  if (more.gathered) rows[0].emplace_back("GATHERED");
  if (more.sums) rows[0].emplace_back("TENSOR SUMS");
  if (more.copy) rows[0].emplace_back("SAVE COPY");
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    rows.push_back(MemoryRow(fmt::format("{}", stage), stages[stage], more));
  }
  const RankMemory all = MemoryOfAll(job, stages);
  const int64_t world = spec::WorldSize(job);
  rows.push_back(MemoryRow(fmt::format("all {} rank{}", world, world == 1 ? "" : "s"), all, more));
  return Table(rows);
}

void AddMemory(const RankMemory& memory, ordered_json* out) {
  out->update({{"parameters", memory.parameters},
               {"weights", memory.weights},
               {"gradients", memory.gradients},
               {"optimizer", memory.optimizer},
               {"activations", memory.activations},
               {"prompts", memory.prompts},
               {"gathered_inputs", memory.gathered_inputs},
               {"total", memory.total()},
               {"tensor_sums", memory.tensor_sums},
               {"save_copy", memory.save_copy}});
}

// Bytes, but for the parameters.
ordered_json TreeOf(const v1::JobSpec& job, const std::vector<RankMemory>& stages) {
  ordered_json tree = {{"stages", ordered_json::array()},
                       {"ranks", spec::WorldSize(job)},
                       {"all", ordered_json::object()}};
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    ordered_json one = {{"stage", stage}};
    AddMemory(stages[stage], &one);
    tree["stages"].push_back(std::move(one));
  }
  AddMemory(MemoryOfAll(job, stages), &tree["all"]);
  return tree;
}

// Of a job that reads a checkpoint there is one rank.
StatusOr<std::vector<RankMemory>> StagesOf(const std::string& checkpoint_root, v1::JobSpec* job) {
  const spec::JobKind& kind = spec::KindOf(*job);
  if (!kind.reads && !checkpoint_root.empty()) {
    return base::InvalidArgument(
        "--checkpoint-root is for jobs that read a checkpoint, and this one is of kind {}",
        kind.name);
  }
  if (checkpoint_root.empty()) return MemoryByStage(job);
  ASSIGN_OR_RETURN(const RankMemory memory, MemoryOfReaderBelow(checkpoint_root, *job));
  return std::vector<RankMemory>{memory};
}

ExitCode RunExplainMemory(const JobFileArgs& file, const std::string& checkpoint_root,
                          const GlobalOptions& options) {
  v1::JobSpec job;
  const ExitCode code = ReadJobFile(file, options, &job);
  if (code != kExitOk) return code;
  const auto stages = StagesOf(checkpoint_root, &job);
  if (!stages.ok()) return Complain(stages.status());
  if (!IsTable(options.output))
    return PrintText(RenderTree(TreeOf(job, *stages), options.output, "stages"));
  if (spec::KindOf(job).reads) {
    return PrintText(MemoryTable(job, *stages) +
                     "\nWeights in the type that is computed in; activations are the cache of keys "
                     "and values, for prompts of a token a byte at most.\nA device of auto is "
                     "counted as CPU slots. Not counted: scratch, workspaces, the tokenizer.\n");
  }
  const std::string prompts =
      spec::WritesTexts(job)
          ? "Texts (training.eval.prompts, decode_tokens): keys and values of what is written, and "
            "rows, on the ranks of the first replica alone.\n"
          : "";
  const std::string gathered =
      MoreColumnsOf(job, *stages).gathered
          ? "Gathered inputs (sequence parallelism) are activations more, besides the total: kept "
            "where every rank has room, else gathered again in backward.\n"
          : "";
  const std::string sums =
      MoreColumnsOf(job, *stages).sums
          ? "Where the GPUs of tensor ranks reach each other, the terms of their sums take memory "
            "of the GPU, besides the total.\n"
          : "";
  const std::string copy =
      job.checkpoint().async_save()
          ? "The copy for saves beside training (checkpoint.async_save) is host "
            "memory, besides the total.\n"
          : "";
  return PrintText(MemoryTable(job, *stages) +
                   "\nParameters as stored, with padding; activations kept from forward to "
                   "backward. A device of auto is counted as CPU slots.\nNot counted: scratch of a "
                   "running action, workspaces, buffers of "
                   "collectives, data.\n" +
                   prompts + gathered + sums + copy);
}

}  // namespace

void AddExplainMemory(CLI::App* explain, const CommandContext& context) {
  CLI::App* command = explain->add_subcommand(
      "memory", "Bytes that each rank of a job keeps, by kind and pipeline stage");
  auto args = std::make_shared<JobFileArgs>();
  AddJobFileFlags(command, args.get());
  auto root = std::make_shared<std::string>();
  command->add_option("--checkpoint-root", *root,
                      "For a job that reads a checkpoint: the folder here below which that lies");
  command->callback(
      [=] { *context.run = [=] { return RunExplainMemory(*args, *root, *context.options); }; });
}

}  // namespace mt::client
