// A checkpoint whose manifest cannot be read protects nobody: it does not count as one of the two.
#include "worker/checkpoint/inspect/deletion.h"

#include <algorithm>

#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/inspect/listing.h"

namespace mt::checkpoint {

Status CheckMayDelete(const DeletionArgs& args) {
  constexpr std::ptrdiff_t kKept = 2;
  const CheckpointPlace& place = args.place;
  ASSIGN_OR_RETURN(const std::optional<Fence> fence, ReadFence(place.directory));
  if (fence && !fence->job_uid.empty() && !args.ended) {
    return base::FailedPrecondition(
        "{} is held by job {} (epoch {}), rank 0 on host {}, and nothing here tells whether it "
        "still "
        "trains; say --ended where it certainly does not",
        place.directory, fence->job_uid, fence->epoch, fence->holder.host);
  }
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
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> all, ReadableCheckpoints(place.directory));
  const auto first_kept = all.end() - std::min(kKept, std::ssize(all));
  if (std::find(first_kept, all.end(), place.id) != all.end()) {
    return base::FailedPrecondition(
        "{} is one of the two newest complete checkpoints of its directory, which a run needs to "
        "go "
        "on; remove the whole directory where nobody needs it",
        place.folder);
  }
  return OkStatus();
}

Status DeleteCheckpoint(const DeletionArgs& args) {
  RETURN_IF_ERROR(CheckMayDelete(args));
  return RemoveCheckpoint(args.place.folder);
}

}  // namespace mt::checkpoint
