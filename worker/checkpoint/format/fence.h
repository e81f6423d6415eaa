// The fence of a checkpoint directory: one file that says who may write there. A new placement's
// rank 0 raises it before it looks for the checkpoint to go on from; whoever saves or deletes reads
// it first and stops where it is no longer his. So a rank that was thought dead, and wakes, harms
// nothing: what it may still commit in the instant after its check lies beyond the base of the next
// directory epoch, and readers ignore it (FORMAT.md; docs/design/control-plane.md#fences).
// Blocking; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"

namespace mt::checkpoint {

struct FenceHolder {
  std::string host;
  int64_t pid = 0;
  std::string boot_id;
};

struct Fence {
  std::string job_uid;          // empty: a standalone run
  int64_t epoch = 0;            // the control plane's, of that job; 0: standalone
  int64_t directory_epoch = 0;  // rises with every raise, whatever the job: eEEEE of folders
  FenceHolder holder;           // rank 0
  std::string token;            // random: what makes a fence "ours"
  // By directory epoch: the newest complete checkpoint when it began; none: there was none. An
  // epoch that ended before it had looked has no entry.
  std::map<int64_t, std::optional<CheckpointId>> bases;
};

inline constexpr std::string_view kFenceName = "FENCE";
inline constexpr int kFenceVersion = 1;

std::string ToJson(const Fence& fence);
// kDataLoss: no fence; kFailedPrecondition: written by a newer format. Any bytes are safe.
StatusOr<Fence> ParseFence(std::string_view json);
// Nothing where the directory has none: it is older than fences, or nobody has written there yet.
StatusOr<std::optional<Fence>> ReadFence(const std::string& directory);

// Whether this complete checkpoint counts: of an open epoch, or not beyond the base of the next
// one.
bool Counts(const std::optional<Fence>& fence, const CheckpointId& id);

struct RaiseArgs {
  std::string directory;  // exists
  std::string job_uid;    // empty: standalone
  int64_t epoch = 0;      // the control plane's
  // Jobs of this directory that are known to have ended: it may be taken over from them.
  std::vector<std::string> ended_job_uids;
  // Test seam: called with each point passed ("locked", "checked", "raised", "found"); an error is
  // a failure there. May be empty.
  std::function<Status(std::string_view point)> failpoint;
};

// Takes the directory over: raises the fence, looks for the newest complete checkpoint, records it
// as the base of the new directory epoch. Contenders wait for each other (flock on FENCE.lock,
// where the file system has locks). kFailedPrecondition, with the holder and what to do: it is held
// by another job, or by an epoch of this one that is not lower; kUnavailable: a contender does not
// finish.
StatusOr<Fence> RaiseFence(const RaiseArgs& args);

// OK where `mine` still holds the directory, else kFailedPrecondition naming who does.
Status CheckFence(const std::string& directory, const Fence& mine);

}  // namespace mt::checkpoint
