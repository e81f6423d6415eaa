// What `mtctl dev down --purge` does beyond removing a folder: the jobs that are forgotten give
// their checkpoint directories free, so that a job of a later cluster may train on there.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "client/session/api.h"
#include "common/base/status.h"

namespace mt::client {

// Of every job that the coordinator knows, in all namespaces.
StatusOr<std::set<std::string>> AllJobUids(const Api& api);

// Takes these jobs' names out of the fences below a checkpoint root, which keep all else
// (worker/checkpoint/FORMAT.md): the directories are then held by nobody. None of the jobs may
// have ranks. Returns how many; one that cannot be read or written is logged and stays.
int64_t ReleaseFences(const std::string& checkpoint_root, const std::set<std::string>& uids);

}  // namespace mt::client
