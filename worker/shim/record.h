// The two files that the shim leaves for the agent, rank.json and exit.json (FORMAT.md): small flat
// JSON objects, written beside, synced and renamed, so that a reader sees a whole one or none.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include "worker/shim/options.h"

namespace mt::shim {

// Why the shim ended the rank; kNone: the rank ended by itself.
enum class StopReason { kNone, kAgentGone, kSignal };

struct ExitRecord {
  int wait_status = 0;     // of wait4
  struct rusage usage {};  // of the rank and its waited-for children
  StopReason stop = StopReason::kNone;
  const char* error = "";  // the program could not be started: what failed
  int error_number = 0;
};

// Clock ticks from boot to the start of this process (/proc/PID/stat field 22), which tells it from
// a later one with the same pid; -1 where there is none.
long long StartTicks(pid_t pid);

// False, with one line on stderr, where the file cannot be written.
bool WriteRankRecord(const Options& options, pid_t rank_pid);
bool WriteExitRecord(const Options& options, const ExitRecord& record);

}  // namespace mt::shim
