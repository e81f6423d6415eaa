// What a rank of a run's first replica writes texts with, beside its engine: the tokenizer, the
// job's prompts in its tokens, and a decoder over the weights that it trains. Texts behind
// evaluations (prompt_samples.h) and those that somebody asks for (asked_texts.h) share it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/layout/group_axes.h"
#include "kernels/ops/backend.h"
#include "worker/data/tokenizer/record.h"
#include "worker/decode/generator.h"
#include "worker/engine/engine.h"
#include "worker/parallel/groups/rank_groups.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

// One thread, that of training.
class TextWriter {
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
  // Takes the memory: a cache of keys and values, and rows. nullptr where the job writes no texts,
  // and on ranks of other replicas. Errors name the field: a prompt that the model has no positions
  // for, a tokenizer whose files are not there or that has more tokens than the model, no memory
  // (kResourceExhausted, cause OOM). Throws what the backend throws.
  static StatusOr<std::unique_ptr<TextWriter>> Create(const Args& args);
  ~TextWriter();

  // training.eval.prompts.
  const decode::GenerateRequest& prompts() const { return prompts_; }
  // Positions of the longest text: training.eval.decode_tokens at least.
  int64_t positions() const;
  int64_t vocab() const;  // of the model
  // The tokens that a text goes on from; `number` counts prompts from 1. kInvalidArgument, naming
  // it: it is empty, and nothing else begins a text; else the tokenizer's errors.
  Status Encode(const std::string& prompt, size_t number, std::vector<int32_t>* ids) const;

  // The ranks of the first replica call it together, with the same request, which suits positions()
  // (CHECK), and once the engine's weights are whole (Engine::BeginEvaluation, Synchronize). The
  // same on all of them: *report, or in it why there are no texts: the model's logits are not
  // finite. Blocks. Errors: the groups', which end the run.
  Status Write(const decode::GenerateRequest& request, const decode::GenerateHooks& hooks,
               StatusOr<decode::GenerateReport>* report);

 private:
  struct Parts;
  explicit TextWriter(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
  decode::GenerateRequest prompts_;
};

}  // namespace mt::train
