// A checkpoint whose manifest cannot be read protects nobody: it does not count as one of the two.
#include "worker/checkpoint/inspect/deletion.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/inspect/listing.h"

namespace mt::checkpoint {
namespace {

constexpr std::ptrdiff_t kKept = 2;

// The complete checkpoints of a run, oldest first.
std::vector<CheckpointId> CompleteOf(const Listing& listing, const std::string& run) {
  std::vector<CheckpointId> complete;
  for (const ListedFolder& folder : listing.folders) {
    if (folder.fault.empty() && folder.run == run) complete.push_back(folder.id);
  }
  return complete;
}

// Those of them that a run needs to go on.
std::set<CheckpointId> NewestOf(const Listing& listing, const std::string& run) {
  const std::vector<CheckpointId> complete = CompleteOf(listing, run);
  return {complete.end() - std::min(kKept, std::ssize(complete)), complete.end()};
}

Status HeldBy(const std::string& what, const Fence& fence) {
  return base::FailedPrecondition(
      "{} is held by job {} (epoch {}), rank 0 on host {}, and nothing here tells whether it still "
      "trains; say --ended where it certainly does not",
      what, fence.job_uid, fence.epoch, fence.holder.host);
}

StatusOr<std::string> FindRunId(const RunDeletionArgs& args, const Listing& listing) {
  std::set<std::string> known, found;
  for (const ListedFolder& folder : listing.folders) {
    if (folder.run.empty()) continue;
    known.insert(folder.run);
    if (folder.run == args.run) return args.run;
    if (!args.run.empty() && folder.run.starts_with(args.run)) found.insert(folder.run);
  }
  if (found.size() == 1) return *found.begin();
  if (found.size() > 1) {
    return base::InvalidArgument("several runs of {} begin with {}: {}", args.directory, args.run,
                                 fmt::join(found, ", "));
  }
  if (known.empty())
    return base::NotFound("{} has no checkpoint of a run with an id", args.directory);
  return base::NotFound("{} has no checkpoint of run {}, but of {}", args.directory, args.run,
                        fmt::join(known, ", "));
}

// Why a folder of the run stays; empty: it goes.
std::string WhyKept(const Listing& listing, const ListedFolder& folder,
                    const std::set<CheckpointId>& newest) {
  if (folder.name.ends_with(".tmp")) return "";
  if (folder.pin) return "is pinned";
  if (!absl::IsNotFound(folder.label.status())) return "has a tag or meta";
  if (!folder.fault.empty()) return "";
  if (newest.contains(folder.id)) return "is one of the two newest of its run";
  for (const RunRecord& other : listing.runs->runs) {
    if (other.id == folder.run || !other.from || other.from->run != folder.run) continue;
    if (other.from->id == folder.id && std::ssize(CompleteOf(listing, other.id)) < kKept)
      return fmt::format("is where run {} began, which has saved less than twice", other.id);
  }
  return "";
}

}  // namespace

Status CheckMayDelete(const DeletionArgs& args) {
  const CheckpointPlace& place = args.place;
  ASSIGN_OR_RETURN(const Listing listing, ListDirectory(place.directory));
  if (listing.fence && !listing.fence->job_uid.empty() && !args.ended)
    return HeldBy(place.directory, *listing.fence);
  if (const auto pin = ReadPin(place.folder)) {
    return base::FailedPrecondition("{} is pinned{}; unpin it first", place.folder,
                                    pin->reason.empty() ? "" : ": " + pin->reason);
  }
  if (HasLabel(place.folder)) {
    const auto label = ReadLabel(place.folder);
    const bool named = label.ok() && !label->tag.empty();
    return base::FailedPrecondition(
        "{} {}; untag it first", place.folder,
        named ? "has the tag " + label->tag : fmt::format("has the file {}", kLabelName));
  }
  const std::string name = FolderName(place.id);
  const auto folder = std::ranges::find(listing.folders, name, &ListedFolder::name);
  if (folder != listing.folders.end() && NewestOf(listing, folder->run).contains(place.id)) {
    return base::FailedPrecondition(
        "{} is one of the two newest complete checkpoints of its run, which it needs to go on; "
        "remove the whole directory where nobody needs it",
        place.folder);
  }
  return OkStatus();
}

Status DeleteCheckpoint(const DeletionArgs& args) {
  RETURN_IF_ERROR(CheckMayDelete(args));
  return RemoveCheckpoint(args.place.folder);
}

StatusOr<RunDeletion> PlanRunDeletion(const RunDeletionArgs& args) {
  ASSIGN_OR_RETURN(const Listing listing, ListDirectory(args.directory));
  RETURN_IF_ERROR(listing.runs.status());
  RunDeletion plan;
  ASSIGN_OR_RETURN(plan.run, FindRunId(args, listing));
  const std::optional<Fence>& fence = listing.fence;
  if (fence && !fence->job_uid.empty() && !args.ended &&
      (fence->run.empty() || fence->run == plan.run))
    return HeldBy(fmt::format("run {} in {}", plan.run, args.directory), *fence);
  const std::set<CheckpointId> newest = NewestOf(listing, plan.run);
  for (const ListedFolder& folder : listing.folders) {
    if (folder.run != plan.run) continue;
    std::string why = WhyKept(listing, folder, newest);
    if (!why.empty()) {
      plan.kept.push_back({.name = folder.name, .why = std::move(why)});
      continue;
    }
    plan.names.push_back(folder.name);
    plan.bytes += folder.bytes;
  }
  return plan;
}

StatusOr<RunDeletion> DeleteRun(const RunDeletionArgs& args) {
  ASSIGN_OR_RETURN(RunDeletion plan, PlanRunDeletion(args));
  for (const std::string& name : plan.names)
    RETURN_IF_ERROR(RemoveCheckpoint(base::JoinPath(args.directory, name)));
  return plan;
}

}  // namespace mt::checkpoint
