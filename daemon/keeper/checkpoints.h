// The checkpoints that a job has on disk, as its ranks report them: Job.checkpoints, the newest
// one, and what follows from a save that succeeded or failed. A save may be reported twice (by
// itself, and as the answer to a command): it counts once. Not thread-safe (the core's thread).
#pragma once

#include <string>
#include <string_view>

#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class CheckpointInfo;
class CheckpointLabel;
class CheckpointsDeleted;
class SecondCopy;
}  // namespace megatrain::v1

namespace mt::daemon {

// A label without tag and meta is none.
bool IsEmpty(const v1::CheckpointLabel& label);
// A save is complete: an event CheckpointSaved, and the condition CheckpointStale goes. One that is
// known already may come again with a label. Labels it: an event CheckpointTagged, and another
// checkpoint of the job with this tag loses its label, as it does on disk.
void RecordCheckpoint(Ledger* ledger, v1::StoredJob& job, const v1::CheckpointInfo& saved);
// A save failed: an event CheckpointFailed, and the condition CheckpointStale until one succeeds.
void RecordFailedSave(Ledger* ledger, v1::StoredJob& job, const std::string& why);
// A checkpoint was copied to the job's second directory, or was not: then an event
// SecondCopyFailed where the copy before did not fail likewise, and the condition SecondCopyStale
// until one succeeds.
void RecordSecondCopy(Ledger* ledger, v1::StoredJob& job, const v1::SecondCopy& copy);
// The ranks have deleted old checkpoints.
void ForgetCheckpoints(Ledger* ledger, v1::StoredJob& job, const v1::CheckpointsDeleted& deleted);
// Whether the job saves at all: checkpoint.directory is not "none".
bool HasCheckpoints(const v1::Job& job);
// The newest step that the job has saved of the run that it trains: 0 from the start of a run of
// `resume --fresh` until that one has saved.
int64_t SavedStep(const v1::StoredJob& job);
// Whether the job was told to save before its ranks end, and has trained beyond what is saved.
bool HasUnsavedSteps(const v1::StoredJob& job);

}  // namespace mt::daemon
