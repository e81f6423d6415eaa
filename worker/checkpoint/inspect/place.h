// What a path means: a directory of checkpoints, or one checkpoint in it. Functions block;
// thread-safe.
#pragma once

#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"

namespace mt::checkpoint {

// Where a path leads, links resolved.
struct Place {
  std::string directory;           // of the checkpoints
  std::optional<CheckpointId> id;  // nullopt: the directory is meant
};

// kNotFound: nothing is there; kInvalidArgument: neither a directory of checkpoints (a folder with
// a fence, or with a folder named as a checkpoint) nor a checkpoint's folder; kFailedPrecondition:
// a checkpoint that is being written, or was left by a crash.
StatusOr<Place> FindPlace(const std::string& path);

// The one checkpoint that is meant. kInvalidArgument, with the newest one's name, for a directory.
struct CheckpointPlace {
  std::string directory;
  CheckpointId id;
  std::string folder;  // its own
};
StatusOr<CheckpointPlace> FindCheckpoint(const std::string& path);

}  // namespace mt::checkpoint
