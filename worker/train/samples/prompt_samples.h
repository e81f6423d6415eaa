// Texts that a run writes behind each of its evaluations (training.eval.prompts): the ranks of its
// first replica go on from the prompts together, with the weights that they train, and the others
// wait. Training sees nothing of it but the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/layout/group_axes.h"
#include "kernels/ops/backend.h"
#include "worker/data/tokenizer/record.h"
#include "worker/engine/engine.h"
#include "worker/parallel/groups/rank_groups.h"

namespace megatrain::v1 {
class JobSpec;
}
namespace mt::comm {
class ProcessGroup;
}

namespace mt::train {

// What the model of a step goes on with behind a prompt.
struct EvalSample {
  std::string prompt;
  std::string text;    // UTF-8: what is none stands as U+FFFD
  std::string finish;  // decode::Name(Finish), or "cut": there was more than kMostSampleBytes
};
inline constexpr size_t kMostSampleBytes = size_t{16} << 10;

// One thread, that of training.
class PromptSamples {
 public:
  // Pointers outlive the object.
  struct Args {
    const megatrain::v1::JobSpec* job = nullptr;  // completed and resolved
    std::string data_root;
    std::optional<data::TokenizerRecord> tokenizer;  // of the run's data
    engine::Engine* engine = nullptr;
    parallel::RankGroups* groups = nullptr;
    kernels::Backend* backend = nullptr;
    int64_t memory_limit_bytes = 0;  // TrainArgs has it: of the rank, with its engine
  };
  // What Create will take of this rank's device, by the formula of `mtctl explain memory`; 0 where
  // it takes nothing.
  static int64_t PlannedBytes(const megatrain::v1::JobSpec& job, const layout::GroupAxes& axes);
  // Every rank calls it; nullptr where the job has no prompts. On ranks of the first replica it
  // takes the memory: a cache of keys and values, and rows. Errors name the field: a prompt that
  // the model has no positions for, a tokenizer whose files are not there or that has more tokens
  // than the model, no memory (kResourceExhausted, cause OOM). Throws what the backend throws.
  static StatusOr<std::unique_ptr<PromptSamples>> Create(const Args& args);
  ~PromptSamples();

  // All ranks call it together. Of the prompts in their order, the same on all ranks of the first
  // replica; none on others, and none where the model's logits are not finite, which is logged.
  // `on_token` is called as tokens are chosen. Blocks. Errors: the groups'.
  StatusOr<std::vector<EvalSample>> Write(const std::function<void()>& on_token);

 private:
  struct Parts;
  explicit PromptSamples(const Args& args);

  engine::Engine* const engine_;
  comm::ProcessGroup* const others_;  // all ranks, where there are other replicas; else nullptr
  const std::chrono::milliseconds patience_;
  std::unique_ptr<Parts> parts_;  // nullptr: of another replica
};

}  // namespace mt::train
