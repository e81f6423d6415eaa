// Which checkpoints of a run are kept: the rules, the choice, and the removal of the others. What
// another run of the same directory has made counts for nothing here and is never removed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"

namespace mt::checkpoint {

// Each rule keeps checkpoints; what none of them keeps is removed.
struct RetentionRules {
  // The newest ones that are healthy, which is neither spoiled nor without a whole manifest; others
  // take the places that those leave. The two newest of these are kept whatever it says, and so are
  // the newest of all, healthy or not, and the newest verified one.
  int64_t keep_last = 2;
  int64_t keep_every = 0;  // those of steps that it divides; 0: off
  // Those with the lowest validation loss, of equal ones the newer; so many of each measure, as
  // losses of different ones are not compared. 0: off.
  int64_t keep_best = 0;
  std::optional<CheckpointId> base{};  // this one
  std::vector<int64_t> steps{};        // those of these steps: others read them now
};

// A complete checkpoint, as far as the rules ask.
struct StoredCheckpoint {
  CheckpointId id;
  std::string run{};      // id of the run that saved it (run_list.h); empty: not known
  bool pinned = false;    // or it has a tag: kept
  bool verified = false;  // somebody found it intact: the newest such one is kept
  // Manifest::spoiled, or the manifest is damaged: never pushes out one that is healthy.
  bool spoiled = false;
  std::optional<double>
      valid_loss{};   // of its step; nullopt or not a number: never one of the best
  Measure measure{};  // of valid_loss
};

// The checkpoints of the run that no rule keeps, oldest first. `all`: the complete ones of a
// directory, in any order; those of other runs, and of runs that are not known, are left alone.
// `run` empty: all are taken as one run's. Pure.
std::vector<CheckpointId> ChooseDoomed(const RetentionRules& rules,
                                       std::vector<StoredCheckpoint> all,
                                       std::string_view run = {});

struct PruneArgs {
  std::string directory;
  RetentionRules rules;
  int64_t epoch = 0;             // of the start that prunes
  const Fence* fence = nullptr;  // which it has raised; nullptr: the directory is not fenced
  // Id of the run that prunes; empty: not known, then all of the directory is taken as its own.
  std::string run{};
  // The directory whose run.json tells of which run an epoch is; empty: `directory` itself.
  std::string list_in{};
  // Of which run each checkpoint is, as earlier calls have found it, so that a save reads the
  // manifests of new ones alone; nullptr: all are read.
  std::map<CheckpointId, std::string>* known = nullptr;
  // Asked when the choice is made, for more of rules.steps, and before each removal of a complete
  // checkpoint: one that is read by then stays. Empty: there are none.
  std::function<std::vector<int64_t>()> kept_steps = {};
};

// Removes the run's complete checkpoints that the rules do not keep, and its unfinished or invalid
// folders of epochs below `epoch` that are not pinned. Such a folder of an epoch of another run
// stays; one of an epoch that no run names goes, unless it has a manifest or there is no list of
// runs that could tell. The fence, if there is one, is checked before each removal:
// kFailedPrecondition if it is another run's. Called by one rank; blocks.
// Returns the names of the removed folders.
StatusOr<std::vector<std::string>> PruneCheckpoints(const PruneArgs& args);

}  // namespace mt::checkpoint
