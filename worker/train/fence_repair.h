// Whether a run may raise its fence again where it is gone from the run's directory: a file system
// that went away and came back without it, or a hand that removed it. It may where the storage is
// the one that the run was placed on, the folder is there, and the coordinator says now that the
// run's epoch is open; everything else fails the save, and training goes on
// (worker/checkpoint/FORMAT.md, "FENCE").
#pragma once

#include <functional>
#include <string>

#include "common/base/status.h"
#include "worker/checkpoint/format/fence.h"

namespace mt::train {

// Plain data; one thread.
struct FenceRepair {
  std::string checkpoint_root;  // absolute
  // Of the marker in the root when the run was placed; empty: there was none, and no fence is
  // raised again.
  std::string root_id;
  // Asks whether the run's epoch is open; blocks for L10 at most. An error where nobody answers.
  // Empty: there is nobody to ask, and no fence is raised again.
  std::function<StatusOr<bool>()> epoch_open;

  // OK: the fence is in the directory again. Else `gone`, why it was looked for, with what keeps it
  // from being raised; kFailedPrecondition where another's fence is there now. Blocks.
  Status Restore(const std::string& directory, const checkpoint::Fence& mine,
                 const Status& gone) const;
};

}  // namespace mt::train
