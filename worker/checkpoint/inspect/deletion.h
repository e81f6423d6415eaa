// An operator's removal of one checkpoint, or of what one run has in a directory, where nobody
// knows what runs. Blocking.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/inspect/place.h"

namespace mt::checkpoint {

struct DeletionArgs {
  CheckpointPlace place;
  bool ended = false;  // the caller's word that the job which the fence names has ended
};

// OK where the checkpoint may be removed. kFailedPrecondition, with the reason: the fence names a
// job, unless `ended`; it is pinned, or has a label; it is one of the two newest complete ones of
// its run, which a resume may need. Else the errors of reading the directory.
Status CheckMayDelete(const DeletionArgs& args);
// Checks again and removes the folder.
Status DeleteCheckpoint(const DeletionArgs& args);

struct RunDeletionArgs {
  std::string directory;
  std::string run;     // its id (run_list.h), or a beginning of it that no other run here has
  bool ended = false;  // as in DeletionArgs
};

// What goes and what stays of a run's folders.
struct RunDeletion {
  struct Kept {
    std::string name;
    std::string why;  // "is pinned"
  };
  std::string run;                 // its whole id
  std::vector<std::string> names;  // of the folders that go, oldest first, unfinished ones last
  int64_t bytes = 0;               // of these
  std::vector<Kept> kept;
};

// What DeleteRun would do. Kept are the run's two newest complete checkpoints, pinned ones, those
// with a label, and the one that another run began from, until that has saved twice.
// kFailedPrecondition: the fence names a job that trains this run, or does not tell which run it
// trains, unless `ended`; the list of runs cannot be read. kNotFound: the directory has nothing of
// this run; kInvalidArgument: several runs begin so.
StatusOr<RunDeletion> PlanRunDeletion(const RunDeletionArgs& args);
// Plans again and removes the folders; what it has done.
StatusOr<RunDeletion> DeleteRun(const RunDeletionArgs& args);

}  // namespace mt::checkpoint
