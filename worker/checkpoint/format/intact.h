// Which checkpoint of a run a start goes on from: the newest one that is intact. What is damaged is
// passed over for the one before of the same run. Blocks on the file system and writes nothing;
// thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

// Checkpoints that turned out to be damaged when they were loaded, and how.
using DamagedCheckpoints = std::map<CheckpointId, std::string>;

// OK if all files that the manifest of the checkpoint in `folder` names are there: those of tensors
// with whole headers and of their full length, the ranks' manifests as they were written. Digests
// of tensors are checked when they are loaded. kDataLoss or kNotFound: the checkpoint is damaged
// (see IsDamage); other errors: nothing is known of it.
Status CheckFiles(const std::string& folder, const Manifest& manifest,
                  const base::FileOpener& open = {});
// Whether an error while something of a checkpoint was read says that it is damaged.
bool IsDamage(const Status& status);

struct IntactQuery {
  std::string directory;
  std::string run;                       // whose checkpoints count
  std::vector<CheckpointId> candidates;  // newest first; by their manifests some may be of others
  DamagedCheckpoints damaged;
  base::FileOpener open;
};

struct IntactChoice {
  std::optional<CheckpointId> load;  // nullopt: no candidate of the run is intact, or there is none
  // What was passed over, newest first: "step-00001200-e0003: rank-00000.safetensors is missing".
  std::vector<std::string> damaged;
};

// Examines the candidates from the newest on, one that seems damaged twice. Where one cannot be
// read, for another reason than damage, nothing is decided: the error names it.
StatusOr<IntactChoice> ChooseIntact(const IntactQuery& query);

}  // namespace mt::checkpoint
