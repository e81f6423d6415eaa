// Puts a backup back, while no coordinator runs. Functions block on the disk.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace mt::daemon {

struct Restored {
  std::string cluster_id;  // empty: the store is older than cluster ids
  int64_t term = 0;        // that the restore declared
  int64_t rows = 0;
  int64_t history_files = 0;
};

// Unpacks the backup `archive` into `state_dir`, which is made, or holds nothing but what a file
// system puts there, and declares the restore: the store's term is raised beyond every term that
// the coordinator can have reached after the backup, so that workers obey it. The store takes its
// place last, as a whole: after an error there is none. FailedPrecondition where the folder holds
// something; DataLoss where the archive is incomplete or damaged; errors of files name their path.
StatusOr<Restored> RestoreBackup(const std::string& archive, const std::string& state_dir);

}  // namespace mt::daemon
