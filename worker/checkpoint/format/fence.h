// The fence of a checkpoint directory: a file that names the only run which may write there. Rank 0
// of a new placement raises the fence before it looks for the checkpoint to resume from; every save
// and removal checks it first and stops if the fence belongs to another run. A rank that was
// believed dead and wakes up therefore does no harm: what it may still commit in the instant after
// its check is newer than the base of the next directory epoch, and readers ignore it (FORMAT.md;
// docs/design/control-plane.md#fences). All functions block; thread-safe.
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

// The process that raised a fence, for messages.
struct FenceHolder {
  std::string host;
  int64_t pid = 0;
  std::string boot_id;
};

// Content of the file FENCE.
struct Fence {
  std::string job_uid;          // empty: a standalone run
  int64_t epoch = 0;            // epoch of that job's placement; 0: standalone
  int64_t directory_epoch = 0;  // increases with every raise, whatever the job: eEEEE of folders
  FenceHolder holder;           // rank 0
  std::string token;            // random; identifies the start that raised the fence
  // Id of the run (run_list.h) that a start has named here last: the holder's, once it has begun
  // or gone on with it, until then that of an earlier holder. Empty: none has named one.
  std::string run;
  // For each directory epoch the newest complete checkpoint at its beginning, nullopt if there was
  // none. An epoch that ended before it had looked has no entry.
  std::map<int64_t, std::optional<CheckpointId>> bases;
};

inline constexpr std::string_view kFenceName = "FENCE";
inline constexpr std::string_view kFenceLockName = "FENCE.lock";  // raises are one at a time
inline constexpr int kFenceVersion = 1;

// The fence as JSON text (FORMAT.md).
std::string ToJson(const Fence& fence);
// Parses a fence from arbitrary bytes. kDataLoss: not a valid fence; kFailedPrecondition: written
// in a newer format.
StatusOr<Fence> ParseFence(std::string_view json);
// The fence of a directory, or nullopt if it has none: nobody has written there yet, or only a
// program that wrote no fences.
StatusOr<std::optional<Fence>> ReadFence(const std::string& directory);

// True if a complete checkpoint is valid under this fence: its epoch is still open, or it is not
// newer than the base of the next epoch.
bool Counts(const std::optional<Fence>& fence, const CheckpointId& id);

// Who takes over which directory.
struct RaiseArgs {
  std::string directory;  // must exist
  std::string job_uid;    // empty: standalone
  int64_t epoch = 0;      // of the job's placement
  // Jobs that are known to have ended: the directory may be taken over from them.
  std::vector<std::string> ended_job_uids;
  // For tests: called at each named point ("locked", "checked", "raised", "found"); an error is
  // treated as a failure at that point. May be empty.
  std::function<Status(std::string_view point)> failpoint;
};

// Takes over the directory: raises the fence, finds the newest complete checkpoint and records it
// as the base of the new directory epoch. Contenders are serialised by flock on FENCE.lock, where
// the file system supports it. kFailedPrecondition, with the holder and what to do: the directory
// is held by another job, or by an epoch of this job that is not lower; kUnavailable: a contender
// does not release the lock within 10 s.
StatusOr<Fence> RaiseFence(const RaiseArgs& args);

// OK if `mine` still holds the directory. kFailedPrecondition, with the current holder: it is
// another's, and this run writes there no more. kNotFound: the directory, or its fence, is gone, or
// an older fence of this job is back, which is a fault of the storage and no takeover; nothing may
// be written until the fence is there again. Else the errors of ReadFence.
Status CheckFence(const std::string& directory, const Fence& mine);

// Raises `mine` again, as it was, in a directory from which it is gone. The caller knows that the
// storage is the same and that the epoch of `mine` is still open. The directory is not made.
// kFailedPrecondition: another's fence is there; kAlreadyExists: no fence is there, but folders of
// a later directory epoch; kUnavailable: as in RaiseFence.
Status RestoreFence(const std::string& directory, const Fence& mine);

// Names the run of the holder in its fence, and in `mine`, once `write` has succeeded. Meanwhile
// nobody raises another fence, where the file system supports locks. Errors are those of CheckFence
// and of `write`, and kUnavailable as in RaiseFence.
Status NameRun(const std::string& directory, const std::string& run,
               const std::function<Status()>& write, Fence* mine);

// The higher epoch of the same job whose fence refused this raise or check; 0: none did.
int64_t FenceEpochOf(const Status& status);

}  // namespace mt::checkpoint
