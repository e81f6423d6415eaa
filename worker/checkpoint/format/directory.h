// The folder that holds a job's checkpoints: `step-00001200-e0003/` each, complete once it carries
// that name and a manifest;
// `.tmp` at the end while it is being written. Blocking; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

// "step-00001200-e0003"
std::string FolderName(const CheckpointId& id);
std::optional<CheckpointId> ParseFolderName(std::string_view name);

// Checkpoints under their final name with a manifest file, oldest first: by epoch, then step. What
// a closed epoch committed beyond the base of the next one is left out (fence.h). A directory that
// does not exist holds none.
StatusOr<std::vector<CheckpointId>> ListCheckpoints(const std::string& directory);
// The highest epoch that any entry carries, unfinished ones too; 0 where there is none. A new run
// starts above it.
StatusOr<int64_t> HighestEpoch(const std::string& directory);
// The newest checkpoint: highest epoch, then highest step. Empty where there is none.
StatusOr<std::optional<CheckpointId>> FindNewest(const std::string& directory);
StatusOr<Manifest> ReadManifest(const std::string& directory, const CheckpointId& id);
// Resolves `load`: a step number (newest epoch that has it), or a folder name.
StatusOr<CheckpointId> FindByName(const std::string& directory, std::string_view text);

}  // namespace mt::checkpoint
