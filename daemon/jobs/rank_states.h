// The states of a rank and of an allocation (one node's slots under one epoch of a job) as tables.
// The caller refuses and counts what is not allowed. Pure; thread-safe.
#pragma once

namespace megatrain::v1 {
enum RankState : int;
enum AllocationState : int;
}  // namespace megatrain::v1

namespace mt::daemon {

// True where a report may move a rank from `from` to `to`. An agent may report only the newest
// state, so intermediate states may be skipped; repeating a state is allowed. UNKNOWN (the rank's
// node is lost) may be followed by any state, FENCED (killed without an answer) by DONE only.
bool RankMayMove(megatrain::v1::RankState from, megatrain::v1::RankState to);
// True in READY, TRAINING and HELD: the rank is loaded and part of the job's groups, and takes
// commands.
bool RankIsReady(megatrain::v1::RankState state);
// True in DONE and FAULTED.
bool RankHasEnded(megatrain::v1::RankState state);

// Whether the table has that move.
bool AllocationMayMove(megatrain::v1::AllocationState from, megatrain::v1::AllocationState to);

}  // namespace mt::daemon
