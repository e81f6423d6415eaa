// Background programs of `mtctl dev`: start detached, find again, stop. A process is known by pid
// and start time, so that a reused pid is never taken for it. Blocking; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::client {

struct ProcessId {
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // /proc/<pid>/stat, field 22
};

// Starts argv[0] in a session of its own with stdin from /dev/null, stdout and stderr appended to
// the log. kNotFound where the program cannot be executed.
StatusOr<ProcessId> StartDetached(const std::vector<std::string>& argv,
                                  const std::string& log_path);

bool IsAlive(const ProcessId& process);

// SIGTERM, then SIGKILL after `grace`. Returns when it is gone.
Status StopProcess(const ProcessId& process, std::chrono::milliseconds grace);

}  // namespace mt::client
