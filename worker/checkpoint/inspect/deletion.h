// An operator's removal of one checkpoint, where nobody knows what runs. Blocking.
#pragma once

#include <string>

#include "common/base/status.h"
#include "worker/checkpoint/inspect/place.h"

namespace mt::checkpoint {

struct DeletionArgs {
  CheckpointPlace place;
  bool ended = false;  // the caller's word that the job which the fence names has ended
};

// OK where the checkpoint may be removed. kFailedPrecondition, with the reason: the fence names a
// job, unless `ended`; it is pinned, or has a label; it is one of the two newest complete ones,
// which a resume may need. Else the errors of reading the directory.
Status CheckMayDelete(const DeletionArgs& args);
// Checks again and removes the folder.
Status DeleteCheckpoint(const DeletionArgs& args);

}  // namespace mt::checkpoint
