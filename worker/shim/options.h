// Command line of mt-shim: --dir DIR --log FILE --job UID --epoch E --rank R --slot S
// [--stop-fd N] [--grace-ms MS] [--log-max-mib N] [--cpus LIST] -- PROGRAM ARGS... All strings
// point into argv.
#pragma once

#include <sched.h>

#include "worker/shim/log_bound.h"

namespace mt::shim {

struct Options {
  const char* dir = nullptr;  // where rank.json and exit.json are written; exists
  const char* log = nullptr;  // the rank's stdout and stderr are appended here
  const char* job_uid = nullptr;
  long epoch = -1;
  int rank = -1;
  int slot = -1;
  // Read end of a pipe that the agent holds: its end-of-file ends the rank. -1: the rank outlives
  // the agent.
  int stop_fd = -1;
  int grace_ms = 5000;  // from SIGTERM to SIGKILL (P5)
  int log_max_mib = kLogMaxMib;
  // Cores that the rank may use: those beside its GPU. Set before it starts, so that its first
  // threads and pages are there.
  bool has_cpus = false;
  cpu_set_t cpus{};
  char** program = nullptr;  // null-terminated
};

// False, with one line on stderr, where an argument is missing, unknown or out of range.
bool ParseOptions(int argc, char** argv, Options* options);

}  // namespace mt::shim
