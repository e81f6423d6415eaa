// Processes that this one has not started: held by a pidfd, so that their number cannot come to
// mean another one, and found by their command line. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/files.h"

namespace mt::node {

// Field 22 of /proc/PID/stat: clock ticks from boot to the start; -1 where there is no such process
// or only a zombie is left.
int64_t StartTicks(int pid);
// The process with this pid started at these ticks of this boot and is not a zombie.
bool IsAlive(int pid, int64_t start_ticks);

// A descriptor of the process, readable once it has ended; empty where it is not alive.
base::Fd OpenProcess(int pid, int64_t start_ticks);
// By number, for a child of this process that was not waited for.
base::Fd OpenChild(int pid);
// False where it has ended.
bool SignalProcess(const base::Fd& process, int signal_number);

// Processes (of any user, this one excepted) with `flag` directly before `value` among their
// arguments.
std::vector<int> FindByArgument(std::string_view flag, std::string_view value);

}  // namespace mt::node
