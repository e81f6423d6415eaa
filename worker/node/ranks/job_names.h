// Names of jobs as they become parts of paths on this node: checked, since they come over the wire.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"

namespace mt::node {

// OK for a name of [a-z0-9-]{1,63} and a uid of [a-zA-Z0-9-]{1,64}.
Status CheckJobNames(const std::string& job_name, const std::string& job_uid);

// Of a rank's log below the log root, whichever agent started it.
std::string RankLogFile(const std::string& log_root, const std::string& job_name,
                        const std::string& job_uid, int rank);

// Of the folder of one job and epoch below `parent`, and of a rank's own in it (rank.json,
// exit.json).
std::string AllocationFolder(const std::string& parent, const std::string& job_uid, int64_t epoch);
std::string RankFolder(const std::string& parent, const std::string& job_uid, int64_t epoch,
                       int rank);

// Their names read back; nullopt for any other name.
struct AllocationName {
  std::string job_uid;
  int64_t epoch = 0;
};
std::optional<AllocationName> ParseAllocationName(const std::string& name);
std::optional<int> ParseRankName(const std::string& name);

}  // namespace mt::node
