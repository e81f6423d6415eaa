// The directory of a job's checkpoints. Each checkpoint is a folder `step-00001200-e0003/`, which
// ends in `.tmp` while it is being written and is complete once it has its final name and a
// manifest. All functions block; thread-safe. Errors: those of the file system, and those of the
// files that are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

// Folder names such as "step-00001200-e0003": made from an id, and parsed (nullopt for any other
// name).
std::string FolderName(const CheckpointId& id);
std::optional<CheckpointId> ParseFolderName(std::string_view name);

// All complete checkpoints, oldest first (by epoch, then step). Excluded is what a fenced-off epoch
// committed after the base of the next epoch (fence.h). Empty if the directory does not exist.
StatusOr<std::vector<CheckpointId>> ListCheckpoints(const std::string& directory);
// The highest epoch in any folder name, unfinished checkpoints included; 0 if there is none. A new
// run begins above it.
StatusOr<int64_t> HighestEpoch(const std::string& directory);
// The newest complete checkpoint, or nullopt.
StatusOr<std::optional<CheckpointId>> FindNewest(const std::string& directory);
// Reads a checkpoint's manifest. kDataLoss if it is damaged or belongs to another step or epoch.
StatusOr<Manifest> ReadManifest(const std::string& directory, const CheckpointId& id,
                                const base::FileOpener& open = {});
// Resolves the job's checkpoint.load: a step number (in the newest epoch that has it) or a folder
// name. kNotFound, with the names that exist.
StatusOr<CheckpointId> FindByName(const std::string& directory, std::string_view text);

// Removes the folder of a checkpoint, complete or not: first the manifest, durably, so that what is
// left by a crash is no checkpoint.
Status RemoveCheckpoint(const std::string& folder);

}  // namespace mt::checkpoint
