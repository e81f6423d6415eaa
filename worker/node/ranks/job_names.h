// Names of jobs as parts of paths on this node. They come over the wire, so they are checked before
// they become part of a path. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"

namespace mt::node {

// OK if the name matches [a-z0-9-]{1,63} and the uid [a-zA-Z0-9-]{1,64}; kInvalidArgument
// otherwise.
Status CheckJobNames(const std::string& job_name, const std::string& job_uid);

// The folder of a job's logs below the log root, where rank 0 leaves its traces, too.
std::string LogDirectory(const std::string& log_root, const std::string& job_name,
                         const std::string& job_uid);
// The path of a trace in it; kInvalidArgument where that is no name of one ("trace-UID.pb").
StatusOr<std::string> TraceFile(const std::string& log_root, const std::string& job_name,
                                const std::string& job_uid, const std::string& trace);

// What a job of kind generate or eval has written, in the same folder.
std::string OutputFile(const std::string& log_root, const std::string& job_name,
                       const std::string& job_uid);

// The path of a rank's log below the log root; the same for every epoch and agent.
std::string RankLogFile(const std::string& log_root, const std::string& job_name,
                        const std::string& job_uid, int rank);

// The path of the folder of a job and epoch below `parent`, and of a rank's folder in it, which
// holds rank.json and exit.json.
std::string AllocationFolder(const std::string& parent, const std::string& job_uid, int64_t epoch);
std::string RankFolder(const std::string& parent, const std::string& job_uid, int64_t epoch,
                       int rank);

// Parse the names of these folders; nullopt for any other name.
struct AllocationName {
  std::string job_uid;
  int64_t epoch = 0;
};
std::optional<AllocationName> ParseAllocationName(const std::string& name);
std::optional<int> ParseRankName(const std::string& name);

}  // namespace mt::node
