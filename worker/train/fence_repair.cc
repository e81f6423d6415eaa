// The conditions in the order of their cost; the last look at the directory is under its lock.
#include "worker/train/fence_repair.h"

#include <filesystem>
#include <system_error>

#include "common/base/log.h"
#include "worker/checkpoint/format/root_marker.h"

namespace mt::train {
namespace {

// OK if the root is the one whose marker has this id.
Status CheckRoot(const std::string& root, const std::string& id) {
  if (id.empty()) {
    return base::NotFound(
        "{} had no marker when the job was placed, so that nobody can tell whether it is the same "
        "storage",
        root);
  }
  return checkpoint::CheckRootMarker(root, id);
}

Status CheckFolder(const std::string& directory) {
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) return OkStatus();
  return base::NotFound("a run makes no folder anew: put {} back, or make an empty one", directory);
}

Status CheckOpen(const std::function<StatusOr<bool>()>& epoch_open) {
  if (!epoch_open) return base::NotFound("no coordinator can say whether this run still owns it");
  ASSIGN_OR_RETURN(const bool open, epoch_open());
  return open ? OkStatus() : base::NotFound("the coordinator says that this epoch is closed");
}

}  // namespace

Status FenceRepair::Restore(const std::string& directory, const checkpoint::Fence& mine,
                            const Status& gone) const {
  Status allowed = CheckRoot(checkpoint_root, root_id);
  if (allowed.ok()) allowed = CheckFolder(directory);
  if (allowed.ok()) allowed = CheckOpen(epoch_open);
  if (!allowed.ok()) {
    return base::NotFound("{} It is not raised again: {}", base::Message(gone),
                          base::Message(allowed));
  }
  RETURN_IF_ERROR(checkpoint::RestoreFence(directory, mine));
  log::Warn("the fence was gone and is raised again",
            {{"directory", directory}, {"epoch", mine.epoch}, {"why", base::Message(gone)}});
  return OkStatus();
}

}  // namespace mt::train
