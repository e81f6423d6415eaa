// The two files that the shim writes for the agent, rank.json and exit.json (FORMAT.md): small flat
// JSON objects, written under a temporary name, synced and renamed, so that a reader sees a whole
// file or none.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include "worker/node/shim/options.h"

namespace mt::node {

// Why the shim stopped the rank; kNone: the rank ended by itself.
enum class StopReason { kNone, kAgentGone, kSignal };

// The content of exit.json.
struct ExitRecord {
  int wait_status = 0;     // as returned by wait4
  struct rusage usage {};  // of the rank and the children it has waited for
  StopReason stop = StopReason::kNone;
  const char* error = "";  // what failed, if the program could not be started
  int error_number = 0;
};

// Clock ticks between boot and the start of the process (/proc/PID/stat, field 22), which
// distinguish it from a later process with the same pid; -1 if there is no such process.
long long ReadStartTicks(pid_t pid);

// Write rank.json and exit.json. False, after a message on stderr, if the file cannot be written.
bool WriteRankRecord(const ShimOptions& options, pid_t rank_pid);
bool WriteExitRecord(const ShimOptions& options, const ExitRecord& record);

}  // namespace mt::node
