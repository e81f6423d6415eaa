// The life of a rank and of an allocation (one node's slots under one epoch of a job), as tables.
// What is not listed is refused by the caller and counted. Pure; thread-safe.
#pragma once

namespace megatrain::v1 {
enum RankState : int;
enum AllocationState : int;
}  // namespace megatrain::v1

namespace mt::daemon {

// A rank moves forward only; an agent may report its newest state alone, so steps may be skipped.
// From UNKNOWN (its node was lost) any state of a living or ended rank may follow. The same state
// again is allowed.
bool RankMayMove(megatrain::v1::RankState from, megatrain::v1::RankState to);
// READY or TRAINING: loaded and part of the job's group.
bool RankIsReady(megatrain::v1::RankState state);
// DONE or FAULTED.
bool RankHasEnded(megatrain::v1::RankState state);

bool AllocationMayMove(megatrain::v1::AllocationState from, megatrain::v1::AllocationState to);

}  // namespace mt::daemon
