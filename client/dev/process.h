// Background processes of `mtctl dev`: start them detached, recognise them later, stop them. A
// process is identified by pid and start time, so that a reused pid is never mistaken for it.
// Functions block; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::client {

// A process of this boot.
struct ProcessId {
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // in clock ticks since boot: field 22 of /proc/<pid>/stat
};

// Starts argv[0] in a session of its own with stdin from /dev/null, and stdout and stderr appended
// to the file `log_path`. kNotFound where the program cannot be executed.
StatusOr<ProcessId> StartDetached(const std::vector<std::string>& argv,
                                  const std::string& log_path);

// True while exactly this process exists and is not a zombie child of ours.
bool IsAlive(const ProcessId& process);

// Sends SIGTERM, and SIGKILL after `grace`. Blocks until the process is gone.
Status StopProcess(const ProcessId& process, std::chrono::milliseconds grace);

}  // namespace mt::client
