// Names of jobs as they become parts of paths on this node: checked, since they come over the wire.
#pragma once

#include <string>

#include "common/base/status.h"

namespace mt::agent {

// OK for a name of [a-z0-9-]{1,63} and a uid of [a-zA-Z0-9-]{1,64}.
Status CheckJobNames(const std::string& job_name, const std::string& job_uid);

// Of a rank's log below the log root, whichever agent started it.
std::string RankLogFile(const std::string& log_root, const std::string& job_name,
                        const std::string& job_uid, int rank);

// Of a rank's own folder (rank.json, exit.json) below `parent`.
std::string RankFolder(const std::string& parent, const std::string& job_uid, int64_t epoch,
                       int rank);

}  // namespace mt::agent
