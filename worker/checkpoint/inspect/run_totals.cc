// One pass over the folders; a directory has few runs.
#include "worker/checkpoint/inspect/run_totals.h"

#include <algorithm>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::checkpoint {
namespace {

RunTotal& Of(const std::string& run, std::vector<RunTotal>* totals) {
  const auto of = std::ranges::find(*totals, run, &RunTotal::run);
  return of != totals->end() ? *of : totals->emplace_back(RunTotal{.run = run});
}

std::string RunOfFolder(const RunList& list, const std::string& directory, const CheckpointId& id) {
  const auto manifest = ReadManifest(directory, id);
  if (manifest.ok()) return RunOf(list, *manifest);
  const RunRecord* const run = RunOfEpoch(list, id.epoch);
  return run == nullptr ? "" : run->id;
}

}  // namespace

std::string CurrentRun(const Listing& listing) {
  if (listing.fence && !listing.fence->run.empty()) return listing.fence->run;
  const auto newest = std::ranges::find_if(listing.folders, &ListedFolder::newest);
  return newest == listing.folders.end() ? "" : newest->run;
}

std::vector<RunTotal> OtherRuns(const Listing& listing, std::string_view run) {
  std::vector<RunTotal> totals;
  for (const ListedFolder& folder : listing.folders) {
    if (folder.run == run) continue;
    RunTotal& total = Of(folder.run, &totals);
    if (folder.fault.empty()) ++total.checkpoints;
    total.bytes += folder.bytes;
  }
  return totals;
}

StatusOr<std::vector<RunTotal>> OtherRunsIn(const std::string& directory, std::string_view run) {
  ASSIGN_OR_RETURN(const RunList list, ReadRuns(directory));
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> all, ListCheckpoints(directory));
  std::vector<RunTotal> totals;
  for (const CheckpointId& id : all) {
    const std::string of = RunOfFolder(list, directory, id);
    if (of == run) continue;
    RunTotal& total = Of(of, &totals);
    ++total.checkpoints;
    total.bytes += FolderBytes(base::JoinPath(directory, FolderName(id))).value_or(0);
  }
  return totals;
}

}  // namespace mt::checkpoint
