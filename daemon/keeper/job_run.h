// Which run a job trains, as its ranks tell when they are ready: Job.run, and what is said of it.
// The run outlives the job, which may be one of several that go on with it. Not thread-safe (the
// core's thread).
#pragma once

#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class RunInfo;
}

namespace mt::daemon {

// The ranks say which run they train: an event RunBegan where it begins with them, RunContinued
// where the job goes on with one that it has not trained before. Ranks from before runs had ids say
// nothing, and nothing changes. Each start of a run is an attempt of it, counted over all its jobs:
// Job.attempt.
void RecordRun(Ledger* ledger, v1::StoredJob& job, const v1::RunInfo& info);
// When they were ready, and which checkpoint they went on from, as far as this store knows it: at
// least its step. The caller marks the job.
void RecordResumed(Ledger* ledger, v1::StoredJob& job, const v1::RunInfo& info);

}  // namespace mt::daemon
