// Who may read the logs of ranks: the user that mt-worker runs as, and its group. A log holds what
// the job, its libraries and its data print. Blocks on the local disk only.
#pragma once

#include <string>

namespace mt::node {

inline constexpr unsigned kLogMode = 0640;
inline constexpr unsigned kLogFolderMode = 0750;

// Takes from a log that exists already, and from its folder, what others may do with it; what the
// owner has forbidden stays so. Files that are another user's, or are not there, are left alone.
void CloseLogToOthers(const std::string& log_file);

}  // namespace mt::node
