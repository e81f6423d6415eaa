// The jobs of one run: a run outlives the job that began it, and each job that goes on with it has
// a part of its history. What a deleted job left stays until the last job of the run is deleted.
// Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/ledger/ledger.h"

namespace mt::daemon {

// Whether its ranks have told that they train this run. An empty id is no run.
bool HasTrained(const v1::StoredJob& job, std::string_view run);
// All that have trained it, deleted ones too, in the order of submission.
std::vector<const v1::StoredJob*> JobsOfRun(Ledger* ledger, std::string_view run);
// The number that the run's next placement has, from 1. A job of a version that did not count them
// counts as one.
int NextAttempt(Ledger* ledger, std::string_view run);

// --- Histories of deleted jobs.
// Those that stay: a job that is not deleted has a run of them.
std::vector<std::string> KeptHistories(Ledger* ledger);
// Those that nobody needs once this job is deleted: its own, and those of deleted jobs of its runs.
// Empty where a job that is not deleted has each of its runs.
std::vector<std::string> HistoriesGoneWith(Ledger* ledger, const std::string& deleted_uid);

}  // namespace mt::daemon
