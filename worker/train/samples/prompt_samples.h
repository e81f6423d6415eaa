// Texts that a run writes behind each of its evaluations (training.eval.prompts): the ranks of its
// first replica go on from the prompts together, with the weights that they train, and the others
// wait. Training sees nothing of it but the time.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/engine/engine.h"
#include "worker/train/samples/text_writer.h"
#include "worker/train/samples/texts.h"

namespace mt::comm {
class ProcessGroup;
}

namespace mt::train {

// One thread, that of training.
class PromptSamples {
 public:
  // Every rank makes one, of a job that has prompts. `writer` is nullptr on ranks of other
  // replicas. Pointers outlive the object.
  PromptSamples(const megatrain::v1::JobSpec& job, engine::Engine* engine,
                parallel::RankGroups* groups, TextWriter* writer);

  // All ranks call it together. Of the prompts in their order, the same on all ranks of the first
  // replica; none on others, and none where the model's logits are not finite, which is logged.
  // `on_token` is called on every rank as tokens are chosen. Blocks. Errors: the groups'.
  StatusOr<std::vector<EvalSample>> Write(const std::function<void()>& on_token);

 private:
  engine::Engine* const engine_;
  comm::ProcessGroup* const others_;  // all ranks, where there are other replicas; else nullptr
  TextWriter* const writer_;
  const std::vector<std::string> prompts_;
  const std::chrono::milliseconds patience_;
};

}  // namespace mt::train
