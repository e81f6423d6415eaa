// Texts that somebody asks a running job for (`mtctl generate --in-job`), where it has planned
// memory for them (training.eval.decode_tokens): between two steps the ranks of the first replica
// write them together, with the weights that they train, and the others wait. Training sees nothing
// of it but the time, of which there is a limit.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/control/numbers.h"
#include "worker/engine/engine.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/train/samples/text_writer.h"
#include "worker/train/samples/texts.h"

namespace mt::train {

// One thread, that of training.
class AskedTexts {
 public:
  // Pointers outlive the object.
  struct Args {
    engine::Engine* engine = nullptr;
    parallel::RankGroups* groups = nullptr;
    TextWriter* writer = nullptr;  // nullptr on ranks of other replicas
    const base::Clock* clock = nullptr;
    std::chrono::milliseconds patience{0};  // of ranks that wait for a token of the others
    std::chrono::milliseconds limit = control::kDecodeLimit;
  };
  explicit AskedTexts(const Args& args) : args_(args) {}

  // All ranks call it together between two steps; `asked` is rank 0's, and nullopt elsewhere. Rank
  // 0: *texts, or in it why there are none, with which training goes on: more texts than may be,
  // numbers out of range, a prompt that the tokenizer or the cache does not take
  // (kInvalidArgument), logits that are not finite. `on_token` is called on every rank while texts
  // are written. Blocks. Errors: the groups'.
  Status Write(const std::optional<TextRequest>& asked, const std::function<void()>& on_token,
               StatusOr<std::vector<DecodedText>>* texts);

 private:
  StatusOr<decode::GenerateRequest> Prepare(const TextRequest& asked) const;
  // On ranks of the first replica.
  Status WriteHere(const decode::GenerateRequest& request, const std::function<void()>& on_token,
                   StatusOr<std::vector<DecodedText>>* texts);

  const Args args_;
};

}  // namespace mt::train
