// Command line of mt-shim: --dir DIR --log FILE --job UID --epoch E --rank R --slot S
// [--stop-fd N] [--grace-ms MS] [--log-max-mib N] [--cpus LIST] -- PROGRAM ARGS... All strings
// point into argv.
#pragma once

#include <sched.h>

#include "worker/node/shim/log_bound.h"

namespace mt::node {

// The parsed command line. See the comments for units and defaults.
struct ShimOptions {
  const char* dir = nullptr;  // where rank.json and exit.json are written; must exist
  const char* log = nullptr;  // the rank's stdout and stderr are appended here
  const char* job_uid = nullptr;
  long epoch = -1;
  int rank = -1;
  int slot = -1;
  // Read end of a pipe whose write end the agent holds: end-of-file stops the rank. -1: the rank
  // outlives the agent.
  int stop_fd = -1;
  int grace_ms = 5000;  // between SIGTERM and SIGKILL (P5)
  int log_max_mib = kLogMaxMib;
  // Cores that the rank may use, those near its GPU. Set before the program starts, so that its
  // first threads and pages are there too.
  bool has_cpus = false;
  cpu_set_t cpus{};
  char** program = nullptr;  // argv of the rank, null-terminated
};

// Parses argv. False, after a message on stderr, if an argument is missing, unknown or out of
// range.
bool ParseShimOptions(int argc, char** argv, ShimOptions* options);

}  // namespace mt::node
