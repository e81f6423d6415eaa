// Names decide; the manifest is not read.
#include "worker/checkpoint/inspect/place.h"

#include <filesystem>
#include <system_error>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::checkpoint {
namespace {

// True for a fence, a list of runs, and for a folder that a save may have made.
bool BelongsToADirectory(const std::string& name) {
  std::string_view stem = name;
  if (stem.ends_with(".tmp")) stem.remove_suffix(4);
  return stem == kFenceName || stem == kFenceLockName || stem == kRunListName ||
         ParseFolderName(stem).has_value();
}

}  // namespace

StatusOr<Place> FindPlace(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) return base::ErrnoError(error.value(), path);
  if (!std::filesystem::is_directory(real, error))
    return base::InvalidArgument(
        "{} is no folder: name a checkpoint's, or that of a job's checkpoints", path);
  const std::string name = real.filename().string();
  if (const auto id = ParseFolderName(name))
    return Place{.directory = real.parent_path().string(), .id = id};
  if (name.ends_with(".tmp") && BelongsToADirectory(name)) {
    return base::FailedPrecondition(
        "{} is no checkpoint: it is being written, or was left by a crash", path);
  }
  std::filesystem::directory_iterator it(real, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (BelongsToADirectory(it->path().filename().string()))
      return Place{.directory = real.string(), .id = std::nullopt};
  }
  if (error) return base::ErrnoError(error.value(), "list " + path);
  if (base::Exists(base::JoinPath(real.string(), kManifestName))) {
    return base::InvalidArgument(
        "{} has a manifest, but not a checkpoint's name (step-00001200-e0003): was it renamed?",
        path);
  }
  return base::InvalidArgument(
      "{} is neither a checkpoint nor a directory of checkpoints: it has no folder such as "
      "step-00001200-e0003",
      path);
}

StatusOr<CheckpointPlace> FindCheckpoint(const std::string& path) {
  ASSIGN_OR_RETURN(const Place place, FindPlace(path));
  if (place.id) {
    return CheckpointPlace{.directory = place.directory,
                           .id = *place.id,
                           .folder = base::JoinPath(place.directory, FolderName(*place.id))};
  }
  const auto newest = FindNewest(place.directory).value_or(std::nullopt);
  const std::string hint =
      newest ? ", such as the newest: " + base::JoinPath(path, FolderName(*newest)) : "";
  return base::InvalidArgument("{} is a directory of checkpoints; name one of them{}", path, hint);
}

}  // namespace mt::checkpoint
