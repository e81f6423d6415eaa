// Kinds that train have all sections but those of readers; a reader has few, and lists them.
#include "common/spec/job_kind.h"

#include <algorithm>
#include <array>

#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

constexpr JobKind kTrain{.name = "train", .has_steps = true, .saves = true};
constexpr JobKind kBench{.name = "bench", .has_steps = true, .is_timed = true};
constexpr JobKind kGenerate{.name = "generate", .reads = true, .decodes = true};
constexpr JobKind kEval{.name = "eval", .reads = true};

// Sections of readers alone.
constexpr std::array<std::string_view, 3> kOfReaders = {"read", "generate", "eval"};

// What every reader has besides `read` and the section of its kind's name.
constexpr std::array<std::string_view, 16> kOfEveryReader = {"name",
                                                             "namespace",
                                                             "labels",
                                                             "kind",
                                                             "priority",
                                                             "read",
                                                             "data.tokenizer",
                                                             "checkpoint.directory",
                                                             "placement.device",
                                                             "placement.slots",
                                                             "placement.node_selector",
                                                             "placement.exclusive",
                                                             "placement.threads_per_rank",
                                                             "resilience.on_agent_exit",
                                                             "resilience.deadline",
                                                             "resilience.timeouts"};
// Of these sections, what is about other ranks or saves.
constexpr std::array<std::string_view, 2> kOfOtherRanks = {"resilience.timeouts.checkpoint",
                                                           "resilience.timeouts.collective"};

// Whether the path is that one, or lies in it.
bool Within(std::string_view path, std::string_view section) {
  return path.starts_with(section) &&
         (path.size() == section.size() || path[section.size()] == '.');
}

}  // namespace

const JobKind& KindOf(const v1::JobSpec& job) {
  switch (job.kind()) {
    case v1::JobSpec::KIND_BENCH:
      return kBench;
    case v1::JobSpec::KIND_GENERATE:
      return kGenerate;
    case v1::JobSpec::KIND_EVAL:
      return kEval;
    default:
      return kTrain;
  }
}

bool HasField(const JobKind& kind, std::string_view path) {
  const auto within = [path](std::string_view section) { return Within(path, section); };
  if (!kind.reads) return std::ranges::none_of(kOfReaders, within);
  if (std::ranges::any_of(kOfOtherRanks, within)) return false;
  const auto meets = [path](std::string_view other) {
    return Within(path, other) || Within(other, path);
  };
  return meets(kind.name) || std::ranges::any_of(kOfEveryReader, meets);
}

std::vector<std::string> BenchOverrides() {
  return {"kind=bench",
          "training.train_iters=null",
          "training.train_samples=null",
          "training.train_tokens=null",
          "training.eval.every_iters=null",
          "training.eval.prompts=null",
          "training.eval.decode_tokens=null",
          "training.exit_after=null",
          "training.exit_at_iter=null",
          "training.exit_interval=null",
          "optimizer.decay=constant",
          "optimizer.decay_over=null",
          "optimizer.min_lr=null",
          "optimizer.warmup=null",
          "optimizer.warmup_init=null",
          "optimizer.wsd.over=null",
          "optimizer.wsd.style=null",
          "checkpoint.directory=none",
          "checkpoint.every_iters=null",
          "checkpoint.every=null",
          "checkpoint.load=null",
          "checkpoint.fresh=null",
          "checkpoint.strict=null"};
}

}  // namespace mt::spec
