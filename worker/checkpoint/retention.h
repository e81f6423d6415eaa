// Which checkpoints of a directory are kept: the rules, the choice, and the removal of the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"

namespace mt::checkpoint {

// Each rule keeps checkpoints; what none of them keeps is removed.
struct RetentionRules {
  // The newest ones. The two newest are kept whatever it says, and so is the newest verified one.
  int64_t keep_last = 2;
  int64_t keep_every = 0;  // those of steps that it divides; 0: off
  // Those with the lowest validation loss, of equal ones the newer; so many of each measure, as
  // losses of different ones are not compared. 0: off.
  int64_t keep_best = 0;
  std::optional<CheckpointId> base{};  // this one
};

// A complete checkpoint, as far as the rules ask.
struct StoredCheckpoint {
  CheckpointId id;
  bool pinned = false;    // or it has a tag: kept
  bool verified = false;  // somebody found it intact: the newest such one is kept
  std::optional<double>
      valid_loss{};   // of its step; nullopt or not a number: never one of the best
  Measure measure{};  // of valid_loss
};

// The checkpoints that no rule keeps, oldest first. `all`: the complete ones of a directory, in any
// order. Pure.
std::vector<CheckpointId> ChooseDoomed(const RetentionRules& rules,
                                       std::vector<StoredCheckpoint> all);

struct PruneArgs {
  std::string directory;
  RetentionRules rules;
  int64_t epoch = 0;             // of the run that prunes
  const Fence* fence = nullptr;  // which it has raised; nullptr: the directory is not fenced
};

// Removes the complete checkpoints that the rules do not keep, and every unfinished or invalid
// folder of an epoch below `epoch` that is not pinned. The fence, if there is one, is checked
// before each removal: kFailedPrecondition if it is another run's. Called by one rank; blocks.
// Returns the names of the removed folders.
StatusOr<std::vector<std::string>> PruneCheckpoints(const PruneArgs& args);

}  // namespace mt::checkpoint
