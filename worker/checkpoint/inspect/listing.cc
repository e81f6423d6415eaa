// The rules are those of format/directory.h; this adds the manifests and the reasons.
#include "worker/checkpoint/inspect/listing.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::checkpoint {
namespace {

// Fills what the manifest tells, or the fault.
void Look(const std::string& directory, const Listing& listing, ListedFolder* folder) {
  const std::string path = base::JoinPath(directory, folder->name);
  folder->bytes = FolderBytes(path).value_or(0);
  folder->pin = ReadPin(path);
  folder->label = ReadLabel(path);
  if (listing.runs.ok()) {
    const RunRecord* const of_epoch = RunOfEpoch(*listing.runs, folder->id.epoch);
    if (of_epoch != nullptr) folder->run = of_epoch->id;
  }
  if (folder->name.ends_with(".tmp")) {
    folder->fault = "unfinished: being written, or left by a crash";
    return;
  }
  if (!base::Exists(base::JoinPath(path, kManifestName))) {
    folder->fault = "no manifest: being removed, or left by a crash";
    return;
  }
  const auto evaluation = ReadEvaluation(path);
  if (evaluation.ok()) folder->evaluation = *evaluation;
  const auto manifest = ReadManifest(directory, folder->id);
  if (!manifest.ok()) {
    folder->fault = base::Message(manifest.status());
    return;
  }
  folder->job_name = manifest->job_name;
  folder->job_uid = manifest->job_uid;
  folder->created = manifest->created;
  folder->run = listing.runs.ok() ? RunOf(*listing.runs, *manifest) : manifest->run;
  folder->world_size = manifest->world_size;
  folder->summary = Summarize(*manifest);
  if (!Counts(listing.fence, folder->id))
    folder->fault = "fenced off: committed after a later epoch had taken the directory over";
}

}  // namespace

StatusOr<Listing> ListDirectory(const std::string& directory) {
  Listing listing;
  ASSIGN_OR_RETURN(listing.fence, ReadFence(directory));
  listing.runs = ReadRuns(directory);
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ListedFolder folder{.name = it->path().filename().string()};
    std::string_view stem = folder.name;
    if (stem.ends_with(".tmp")) stem.remove_suffix(4);
    const auto id = ParseFolderName(stem);
    if (!id) continue;
    folder.id = *id;
    Look(directory, listing, &folder);
    listing.folders.push_back(std::move(folder));
  }
  if (error) return base::ErrnoError(error.value(), "list " + directory);
  std::ranges::sort(listing.folders, {}, [](const ListedFolder& folder) {
    return std::tuple(folder.name.ends_with(".tmp"), folder.id.epoch, folder.id.step);
  });
  const auto newest = std::find_if(listing.folders.rbegin(), listing.folders.rend(),
                                   [](const ListedFolder& one) { return one.fault.empty(); });
  if (newest != listing.folders.rend()) newest->newest = true;
  return listing;
}

StatusOr<std::vector<CheckpointId>> ReadableCheckpoints(const std::string& directory) {
  ASSIGN_OR_RETURN(std::vector<CheckpointId> all, ListCheckpoints(directory));
  std::erase_if(all, [&](const CheckpointId& id) { return !ReadManifest(directory, id).ok(); });
  return all;
}

}  // namespace mt::checkpoint
