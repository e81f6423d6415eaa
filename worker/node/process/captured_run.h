// A short run of a program whose output is read once it has ended: what it prints goes to memory,
// and its end is watched by a pidfd. Not thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::node {

// Of a child process; whoever holds it collects its exit (waitpid).
struct CapturedRun {
  pid_t pid = 0;
  base::Fd process;  // pidfd
  base::Fd output;   // memfd: what it has printed to stdout
};

// Starts command[0], a path, with this process' environment (ChildEnvironment); stderr goes
// nowhere. kInternal: it cannot be started.
StatusOr<CapturedRun> StartCaptured(const std::vector<std::string>& command);
// Blocks until it has ended, for this time at most; true: it has.
bool EndsWithin(const CapturedRun& run, std::chrono::milliseconds time);
// What it has printed, 1 MiB at most.
std::string OutputOf(const CapturedRun& run);

}  // namespace mt::node
