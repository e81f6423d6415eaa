// Finds and signals processes that this one has not started. They are held by a pidfd, because a
// pid can be reused, and found by their command line. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/files.h"

namespace mt::node {

// Clock ticks from boot to the start of the process (field 22 of /proc/PID/stat); -1 if there is no
// such process or it is a zombie.
int64_t StartTicks(int pid);
// True if the process with this pid was started at these ticks of this boot and is not a zombie.
bool IsAlive(int pid, int64_t start_ticks);

// A pidfd of the process, readable once it has ended; empty if it is not alive.
base::Fd OpenProcess(int pid, int64_t start_ticks);
// The pidfd of a child of this process that was not waited for; empty on error.
base::Fd OpenChild(int pid);
// False if the process has ended.
bool SignalProcess(const base::Fd& process, int signal_number);

// Pids of the processes, of any user and without this one, that have `flag` directly before `value`
// among their arguments.
std::vector<int> FindByArgument(std::string_view flag, std::string_view value);

}  // namespace mt::node
