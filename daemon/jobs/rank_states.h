// The life of a rank and of an allocation (one node's slots under one epoch of a job), as tables.
// What is not listed is refused by the caller and counted. Pure; thread-safe.
#pragma once

namespace megatrain::v1 {
enum RankState : int;
enum AllocationState : int;
}  // namespace megatrain::v1

namespace mt::daemon {

// Whether a report may take a rank there. An agent may report the newest state alone, so moves of
// the table may be skipped; the same state again is allowed. From UNKNOWN (its node was lost) any
// state follows, from FENCED (killed, unheard) only DONE.
bool RankMayMove(megatrain::v1::RankState from, megatrain::v1::RankState to);
// READY, TRAINING or HELD: loaded and part of the job's group, it takes words.
bool RankIsReady(megatrain::v1::RankState state);
// DONE or FAULTED.
bool RankHasEnded(megatrain::v1::RankState state);

bool AllocationMayMove(megatrain::v1::AllocationState from, megatrain::v1::AllocationState to);

}  // namespace mt::daemon
